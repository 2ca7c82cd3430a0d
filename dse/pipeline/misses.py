"""The points that came nearest to being feasible, and what would make them so."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from dse.pipeline.judged import Judged, spread
from dse.run.identity import point_id
from dse.serving.slo import SLO
from dse.space.refused import refusal
from dse.study import Study
from dse.walls.explain import Asked, smallest_changes
from dse.walls.judge import LEGALITY

__all__ = ["asked_of", "near_misses"]

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
    """Killed points and simulated ones that miss the SLO, nearest first, with their `point_id` and
    a `remedy` each.
    """
    parts = []
    if judged.misses.height:
        nearest = judged.misses.head(MOST)
        rows = list(nearest.iter_rows(named=True))
        named: dict[str, list[str | None]] = {
            "point_id": [_point_id(study, judged, row) for row in rows],
            "remedy": _remedies(study, judged, rows),
        }
        columns = [pl.Series(name, values, dtype=pl.String) for name, values in named.items()]
        parts.append(nearest.with_columns(columns))
    if study.slo is not None and "slo_attainment" in results.columns:
        parts.append(_late(study, results))
    if judged.refused and judged.survivors.is_empty():
        parts.append(_refused(judged))
    found = pl.concat([pl.DataFrame(schema=_COLUMNS), *parts], how="diagonal_relaxed")
    return found.sort("margin", nulls_last=True, maintain_order=True).head(MOST)


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


def _point_id(study: Study, judged: Judged, row: dict[str, Any]) -> str | None:
    """The identity that the killed point would have in the store."""
    deployment = judged.missed[row["structure"]].deployment
    if deployment is None or study.is_load_searched:
        return None
    return point_id(deployment, study.workload_of(row))


def _refused(judged: Judged) -> pl.DataFrame:
    """The first illegal structure of each rule, with the rule's reason and nearest legal values."""
    rows = [
        {
            **each.columns,
            "branch": each.branch,
            "reason": LEGALITY,
            "rule": each.illegal[0].rule,
            "remedy": refusal(each),
        }
        for each in judged.refused
    ]
    return pl.from_dicts(rows, infer_schema_length=None)


def _remedies(study: Study, judged: Judged, rows: list[dict[str, Any]]) -> list[str | None]:
    """The smallest change of each point after which no wall kills it, in words."""
    told: list[str | None] = [""] * len(rows)
    points = {}
    for index, row in enumerate(rows):
        deployment = judged.missed[row["structure"]].deployment
        if deployment is not None and row["reason"] != LEGALITY:
            points[index] = deployment, asked_of(study, row)
    for index, changes in zip(points, smallest_changes(list(points.values())), strict=True):
        told[index] = " or ".join(changes[:2]) or "no single change that was tried would do"
    return told


def asked_of(study: Study, row: dict[str, Any]) -> Asked:
    """What a point is asked, in the words of the walls."""
    low, high = spread(study)
    isl, osl = row["isl_tokens"], row["osl_tokens"]
    requests = study.asked.file.requests
    concurrency = row.get("concurrency")
    return Asked(
        isl_low_tokens=max(1, int(isl * low)),
        osl_low_tokens=max(1, int(osl * low)),
        osl_high_tokens=math.ceil(osl * high),
        slo=study.slo or SLO(),
        concurrency=concurrency,
        n_requests=requests.number(concurrency) if requests is not None else None,
        shared_tokens=study.asked.file.shared_prefix_tokens,
    )
