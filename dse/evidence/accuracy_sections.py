"""Sections of the accuracy page on stated intervals and on the saturation model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from dse.catalog import Catalog
from dse.evidence.coverage import ALL, coverage
from dse.evidence.measurement import read_measurements
from dse.evidence.sweep import sweep_rows
from dse.evidence.validate_saturation import sweep_scores

__all__ = ["coverage_section", "saturation_section"]

_METRICS: Final = {
    "tpot_s": "TPOT", "ttft_s": "TTFT", "e2e_s": "E2E", "output_tok_per_s": "output throughput",
    "total_tok_per_s": "total throughput",
}  # fmt: skip
_LABELS: Final = {**_METRICS, ALL: "all metrics"}
_FEWEST_SWEEP_ROWS: Final = 30
_INTERVALS: Final = """## Stated 80% intervals

Share of rows inside the interval stated for them: made from all rows, without the rows of the same
GPU and model, and without the rows of the same source. A decision about hardware or a model that
nobody measured is of the second kind, so the quantiles are those for which the first and the second
share are nearest to 80%. A source left out shows how much depends on who measured: engines of other
ages, other clients.

| engine | metric | rows | seen | GPU and model left out | source left out |
|---|---|---:|---:|---:|---:|
"""
_SATURATION: Final = """## Saturation model

Throughput of rows that its constants did not see, of "Mind the Memory Gap" (arXiv:2503.08311); SLIM
(arXiv:2607.29575) publishes the last two lines on its own rows. More in
[accuracy-saturation.md](accuracy-saturation.md).

| unseen rows | rows fitted | rows scored | throughput MAPE | worst |
|---|---:|---:|---:|---:|
"""
_SLIM: Final = (
    "| SLIM as published: unseen lengths | | | < 6% | |\n"
    "| SLIM as published: unseen model | | | 24.3% | |\n"
)


def coverage_section(rows: pl.DataFrame) -> str:
    """Coverage by engine and metric; `rows` as for `coverage`."""
    lines = [
        f"| {each.engine} | {_LABELS[each.metric]} | {each.n} | {_share(each.seen)} | "
        f"{_share(each.pair_out)} | {_share(each.source_out)} |\n"
        for each in coverage(rows, tuple(_METRICS))
    ]
    return _INTERVALS + "".join(lines)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def saturation_section(path: Path) -> str:
    """Scores of the saturation model on the sweep rows of `path`; empty without enough of them."""
    rows, _ = sweep_rows(read_measurements(path), Catalog.load())
    if len(rows) < _FEWEST_SWEEP_ROWS:
        return ""
    lines = [
        f"| {each.name} | {each.n_fitted} | {each.n} | {each.throughput_mape:.1%} | "
        f"{each.throughput_worst:.1%} |\n"
        for each in sweep_scores(rows)
    ]
    return _SATURATION + "".join(lines) + _SLIM
