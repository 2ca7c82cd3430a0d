"""Measured rows with their verdicts, as a table to read and to argue with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

__all__ = ["examples", "examples_table"]

N_EXAMPLES: Final = 30
_HEAD: Final = """## Thirty rows and what their verdicts are worth

One row a model, GPU and engine, evenly over the residuals. *Simulated* is measured ÷ simulated; the
reading follows from it and from the verdict by rule. Between {fast:.1f} and {slow} a server is as
fast as its engine on that GPU, whatever the floor says; above, it is slow; below, the row ran less
than is stated of it, or our times are too long. A GPU without kernel tables of its own is priced
from relatives, so that a slow row of it may be our fault.

| model | GPU | engine | requests | step | floor | residual | opens above | MBU | simulated | \
verdict | reading |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|
"""
_READING: Final[Mapping[str, str]] = {
    "below_floor": "faster than its bytes allow: batch or tokens per step are not what is stated",
    "inside": "overlap as good as hardware gives: change layout or load, not kernels",
    "residual": "normal for its engine: no profiler",
    "escalate": "false alarm: prompts in between, launches and small kernels, as simulated",
    "residual, slow": "missed: slower than its engine, though near the floor",
    "escalate, slow": "right: slower than its engine; profile what {binding} does not explain",
    "residual, slow, priced from relatives": "open: slow, or our times for its GPU are too short",
    "escalate, slow, priced from relatives": "open: slow, or our times for its GPU are too short; "
    "profile what {binding} does not explain",
    "residual, fast": "no profiler, but too fast: look for a smaller load, cached prompts or "
    "speculation that nobody stated, or our times are too long",
    "escalate, fast": "false alarm, and too fast: look for a smaller load, cached prompts or "
    "speculation that nobody stated, or our times are too long",
}


def examples(rows: pl.DataFrame, n: int = N_EXAMPLES) -> pl.DataFrame:
    """`n` rows of a study: the middle one of each model, GPU and engine, evenly over residuals."""
    known = rows.drop_nulls("slow").sort("residual")
    middle = known.group_by("model", "gpu", "engine", maintain_order=True).agg(
        pl.all().gather(pl.len() // 2).first()
    )
    ordered = middle.sort("residual")
    if ordered.height <= n:
        return ordered
    places = [round(i * (ordered.height - 1) / (n - 1)) for i in range(n)]
    return ordered[places]


def examples_table(rows: pl.DataFrame, limits: Mapping[str, float], slow: float) -> str:
    """The examples of `rows` as Markdown; `limits` are the thresholds by regime."""
    lines = [
        _line(row, limits[row["regime"]], slow) for row in examples(rows).iter_rows(named=True)
    ]
    return _HEAD.format(slow=slow, fast=1.0 / slow) + "".join(lines)


def _line(row: Mapping[str, Any], limit: float, slow: float) -> str:
    verdict = _verdict(row, limit)
    reading = _READING[verdict + _pace(row, verdict, slow)].format(binding=row["binding"])
    return (
        f"| {row['model']} | {row['gpu']} | {row['engine']} | {row['n_requests']:.0f} | "
        f"{row['measured_s'] * 1e3:.1f} ms | {row['t_opt_s'] * 1e3:.1f} ms | "
        f"{row['residual']:.2f} | {limit:.1f} | {row['mbu']:.0%} | {row['ratio']:.2f} | "
        f"{verdict} | {reading} |\n"
    )


def _verdict(row: Mapping[str, Any], limit: float) -> str:
    if row["measured_s"] < row["t_opt_s"]:
        return "below_floor"
    if row["measured_s"] <= row["t_sum_s"]:
        return "inside"
    return "residual" if row["residual"] <= limit else "escalate"


def _pace(row: Mapping[str, Any], verdict: str, slow: float) -> str:
    """How the row stands to its simulation, where the reading depends on it."""
    if verdict not in ("residual", "escalate"):
        return ""
    if row["slow"]:
        return ", slow" if row["tier"] == "target" else ", slow, priced from relatives"
    return ", fast" if row["ratio"] < 1.0 / slow else ""
