"""The points that came nearest to being feasible, and what would make them so."""

from __future__ import annotations

import polars as pl

from dse.base.units import UNITS, show
from dse.pipeline.judged import Judged
from dse.study import Study

__all__ = ["near_misses"]

MOST = 12
_COLUMNS = {
    "reason": pl.String,
    "demand": pl.Float64,
    "limit": pl.Float64,
    "unit": pl.String,
    "margin": pl.Float64,
    "remedy": pl.String,
}


def near_misses(study: Study, judged: Judged, results: pl.DataFrame) -> pl.DataFrame:
    """Killed points and simulated ones that miss the SLO, nearest first, with a `remedy` each."""
    parts = []
    if judged.misses.height:
        remedies = [_remedy(row) for row in judged.misses.iter_rows(named=True)]
        parts.append(judged.misses.with_columns(pl.Series("remedy", remedies, dtype=pl.String)))
    if study.slo is not None and "slo_attainment" in results.columns:
        parts.append(_late(study, results))
    found = pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame(schema=_COLUMNS)
    return found.sort("margin", maintain_order=True).head(MOST)


def _late(study: Study, results: pl.DataFrame) -> pl.DataFrame:
    """Simulated points whose share of good requests is too small."""
    assert study.slo is not None
    wanted = study.slo.attainment
    late = results.filter((pl.col("status") == "ok") & (pl.col("slo_attainment") < wanted))
    scored = late.with_columns(
        reason=pl.lit("slo_attainment"),
        demand=pl.lit(wanted),
        limit=pl.col("slo_attainment"),
        unit=pl.lit(""),
        margin=wanted - pl.col("slo_attainment"),
        remedy=pl.format(
            "{}% of its requests meet the SLO: lower the load, or ask for less",
            (100 * pl.col("slo_attainment")).round(1),
        ),
    )
    return scored.bottom_k(MOST, by="margin") if scored.height else scored


def _remedy(row: dict[str, object]) -> str:
    unit = UNITS.get(str(row["unit"]))
    demand, limit = (
        show(float(str(row[name])), unit) if unit else f"{float(str(row[name])):,.4g} {row['unit']}"
        for name in ("demand", "limit")
    )
    return f"needs {demand} where {limit} is allowed: {float(str(row['margin'])):+.1%}"
