"""Measured rows with their verdicts, as a table to read and to argue with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

__all__ = ["examples", "examples_table"]

N_EXAMPLES: Final = 30
_HEAD: Final = """## Thirty rows, read

One row a model, GPU and engine, evenly over the residuals. *Simulated* is measured ÷ simulated: up
to {slow} the server is as fast as its engine on that GPU, whatever the floor says. MI300X and
MI325X are priced from relatives: that they are slow may be our price.

| model | GPU | engine | requests | step | floor | residual | opens above | MBU | simulated | \
verdict | reading |
|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|
"""
_READING: Final[Mapping[str, str]] = {
    "below_floor": "faster than its bytes allow: batch or tokens per step are not what is stated",
    "inside": "overlap as good as hardware gives: change layout or load, not kernels",
    "residual": "normal for its engine: no profiler",
    "residual, slow": "missed: slower than its engine, though near the floor",
    "escalate": "false alarm: launches and small kernels of this engine explain it",
    "escalate, slow": "right: slower than its engine; profile what {binding} does not explain",
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
    lines = [_line(row, limits[row["regime"]]) for row in examples(rows).iter_rows(named=True)]
    return _HEAD.format(slow=slow) + "".join(lines)


def _line(row: Mapping[str, Any], limit: float) -> str:
    verdict = _verdict(row, limit)
    slow = ", slow" if row["slow"] and verdict in ("residual", "escalate") else ""
    reading = _READING[verdict + slow].format(binding=row["binding"])
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
