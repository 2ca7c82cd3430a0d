"""The words of a study's conditions: what a point's results are called."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from dse.base.units import unit_of_name
from dse.pareto import OBJECTIVES
from dse.space import Space
from dse.space.where import Words
from dse.space.words import words_of

__all__ = ["METRICS", "column_words", "known_columns", "result_words"]

_LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue")
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")

METRICS = (
    *(f"{latency}_{statistic}_s" for latency in _LATENCIES for statistic in _STATISTICS),
    "request_per_s",
    "input_tok_per_s",
    "output_tok_per_s",
    "total_tok_per_s",
    "output_tok_per_s_per_gpu",
    "total_tok_per_s_per_gpu",
    "tok_per_s_per_user",
    "goodput_req_per_s",
    "goodput_req_per_s_per_gpu",
    "slo_attainment",
    "n_preemptions",
    "prefix_hit_fraction",
    "kv_peak_fraction",
    "kv_mean_fraction",
    "mfu",
    "mbu",
    "joules_per_output_token",
)
"""The metrics of a simulated point that a constraint may name, by column."""


def result_words(space: Space) -> Words:
    """Return what constraints may name: metrics and objectives, by column or without the unit of
    time (`ttft_p99` is `ttft_p99_s`), and the columns of every branch.
    """
    words = dict(column_words(space))
    columns = [*METRICS, *(part.column for part in OBJECTIVES.values())]
    words |= {column: (column, pl.Float64) for column in columns}
    words |= {_short(column): (column, pl.Float64) for column in columns}
    words |= {kind: (part.column, pl.Float64) for kind, part in OBJECTIVES.items()}
    return words


def column_words(space: Space) -> Words:
    """Return what screens may name: the columns that the points of every branch have."""
    each = [_branch_words(space, branch.name) for branch in space.branches]
    common = set.intersection(*(set(words) for words in each)) if each else set()
    return {name: each[0][name] for name in each[0] if name in common} if each else {}


def _branch_words(space: Space, name: str) -> Words:
    branch = space.branch(name)
    varied = set(branch.varied())
    words = words_of(branch.roles, branch.numeric)
    return {
        word: (column, dtype)
        for word, (column, dtype) in words.items()
        if "." not in column or column in varied
    }


def _short(column: str) -> str:
    unit = unit_of_name(column)
    is_time = unit is not None and unit.symbol == "s"
    return column.removesuffix("_s") if is_time else column


def known_columns(space: Space) -> Iterable[str]:
    """Return the columns that a comparison may be made by."""
    return [column for column, _ in column_words(space).values()]
