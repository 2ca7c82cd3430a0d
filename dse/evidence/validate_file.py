"""A file of measured rows against predictions: what `dse validate FILE.csv` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

import polars as pl

from dse.catalog import Catalog
from dse.evidence.case import Case
from dse.evidence.measurement import NEEDED, measurements, read_frame
from dse.evidence.serving_rows import serving_cases

__all__ = ["SLICED_BY", "answers", "only_graded", "read_cases", "sampled"]

SLICED_BY: Final = ("grade", "source", "gpu", "engine", "class", "mode", "model")
_COLUMNS: Final = {
    "ttft_s": ("ttft_ms", 1e3),
    "tpot_s": ("tpot_ms", 1e3),
    "output_tok_per_s": ("output_tok_s_total", 1.0),
    "total_tok_per_s": ("total_tok_s", 1.0),
    "e2e_s": ("e2e_ms", 1e3),
}


def read_cases(path: Path, catalog: Catalog | None = None) -> tuple[pl.DataFrame, list[Case]]:
    """The rows of `path` as they stand and one case a row, in order.

    A throughput that is only given per GPU is multiplied out; an offline job without a load has
    every request queued at once.
    """
    frame = read_frame(path)
    stated = _completed(frame)
    cases = {case.key: case for case in serving_cases(measurements(stated), catalog)}
    return frame, [
        cases.get(str(line)) or _untold(line, row)
        for line, row in enumerate(stated.iter_rows(named=True), start=2)
    ]


def answers(frame: pl.DataFrame, predicted: pl.DataFrame) -> pl.DataFrame:
    """`frame` with `pred_*`, `lo_*`, `hi_*` in its own units, `status` and `reason` of each row."""
    columns: list[pl.Series] = []
    for metric, (name, scale) in _COLUMNS.items():
        for part in ("pred", "lo", "hi"):
            if f"{part}_{metric}" in predicted.columns:
                values = predicted[f"{part}_{metric}"].cast(pl.Float64) * scale
                columns.append(values.alias(f"{part}_{name}"))
    status = predicted["status"].fill_null("skipped")
    why = predicted.select(
        pl.when(pl.col("reason") != "").then("reason").otherwise(pl.col("error").fill_null(""))
    ).to_series()
    return frame.with_columns(*columns, status.alias("status"), why.alias("reason"))


def _completed(frame: pl.DataFrame) -> pl.DataFrame:
    offline = pl.col("load_mode").fill_null("").str.to_lowercase().str.contains("offline")
    load = pl.col("concurrency_or_batch")
    whole = frame.with_columns(
        pl.when(offline & load.is_null()).then(0).otherwise(load).alias("concurrency_or_batch")
    )
    if {"tok_s_per_gpu", "tok_s_per_gpu_kind"} <= set(frame.columns):
        kind = pl.col("tok_s_per_gpu_kind").cast(pl.String).fill_null("")
        each = pl.col("tok_s_per_gpu").cast(pl.Float64, strict=False) * pl.col("n_gpus")
        for name, start in (("total_tok_s", "total"), ("output_tok_s_total", "output")):
            known = pl.when(kind.str.starts_with(start)).then(each)
            whole = whole.with_columns(pl.coalesce(pl.col(name), known).alias(name))
    return whole


def _untold(line: int, row: dict[str, Any]) -> Case:
    missing = [name for name in NEEDED if row[name] is None]
    labels = {
        "gpu": row["gpu"] or "",
        "engine": row["framework"] or "unstated",
        "model": row["model"] or "",
        "grade": row["grade"] or "",
        "source": (row["file"] or row["source"] or "").removesuffix(".csv"),
    }
    reason = f"the row does not say {', '.join(missing)}"
    return Case(key=str(line), labels=labels, measured={}, reason=reason)


def only_graded(cases: Sequence[Case], grades: str) -> list[Case]:
    """`cases` with those outside `grades` (as "AB") left unasked."""
    return [
        case
        if case.labels.get("grade", "") in grades or not case.labels.get("grade")
        else replace(case, deployment=None, workload=None, reason="grade not asked for")
        for case in cases
    ]


def sampled(cases: Sequence[Case], most: int | None) -> list[Case]:
    """`cases` with all but `most` of the predictable ones, drawn at random, left unasked."""
    asked = [i for i, case in enumerate(cases) if case.deployment is not None]
    kept = set(asked if most is None else Random(0).sample(asked, min(most, len(asked))))
    return [
        case
        if case.deployment is None or i in kept
        else replace(case, deployment=None, workload=None, reason="not in the sample asked for")
        for i, case in enumerate(cases)
    ]
