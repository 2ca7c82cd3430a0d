"""What the report tells of the members of the front beyond their row."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from dse.base.errors import DseError
from dse.cost.account import decode_floor
from dse.pipeline.judged import Judged
from dse.report.layouts import in_flight
from dse.saturation.advisor import advise
from dse.saturation.constants import shipped_fit
from dse.saturation.demand import load_of
from dse.serving.deployment import Deployment
from dse.study import Load, Study
from dse.walls.describe import describe

__all__ = ["details"]

MOST_BATCHES = 12


def details(study: Study, judged: Judged, rows: pl.DataFrame) -> dict[str, Mapping[str, Any]]:
    """Per `point_id` of `rows`: `walls` (as `dse walls` says it), `curve` (floors of a
    step against requests in flight), `breakdown` (seconds by kernel family) and `advice`.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows.iter_rows(named=True):
        deployment = judged.structures[row["structure"]].deployment
        if deployment is None:
            continue
        told: dict[str, Any] = {
            "walls": _walls(study, deployment, row),
            "curve": _curve(deployment, row),
        }
        if isinstance(row.get("step_breakdown"), str):
            seconds = json.loads(row["step_breakdown"])
            told["breakdown"] = [{"family": name, "seconds": s} for name, s in seconds.items()]
        if (advice := _advice(study, deployment, row)) is not None:
            told["advice"] = advice
        found[row["point_id"]] = told
    return found


def _walls(study: Study, deployment: Deployment, row: Mapping[str, Any]) -> dict[str, Any]:
    """The walls at the load of the row: of an offered rate, at the requests that it keeps in flight
    on average, so that its steps are those of the batch that ran.
    """
    running = math.ceil(in_flight(row) or 0.0)
    return describe(
        deployment,
        context_tokens=_context(row),
        concurrency=max(running, deployment.pool("decode").n_replicas),
        slo=study.slo,
    )


def _context(row: Mapping[str, Any]) -> int:
    """Mean live context of a decoding request."""
    return int(row["isl_tokens"] + row["osl_tokens"] / 2)


def _curve(deployment: Deployment, row: Mapping[str, Any]) -> list[dict[str, float]]:
    """Floors of a decode step of the whole deployment at powers of two of requests in flight."""
    pool = deployment.pool("decode")
    batches = 2.0 ** np.arange(MOST_BATCHES)
    floor = decode_floor(deployment, pool, batches, float(_context(row)))
    parts = {"t_opt_s": floor.t_opt_s, "t_sum_s": floor.t_sum_s}
    columns = {
        name: np.broadcast_to(np.asarray(each), batches.shape) for name, each in parts.items()
    }
    return [
        {"concurrency": batch * pool.n_replicas, **{k: float(v[i]) for k, v in columns.items()}}
        for i, batch in enumerate(batches.tolist())
    ]


def _advice(study: Study, deployment: Deployment, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The batch cap of an aggregated member; None where no cap meets the SLO."""
    if deployment.is_disaggregated:
        return None
    load = Load(concurrency=int(row.get("concurrency") or 1))
    workload = study.workload_of(row, load)
    pool = deployment.pools[0]
    asked = load_of(workload, 1.0, prefix_caching=pool.engine.prefix_caching)
    fit = shipped_fit(pool.gpu.name, pool.engine.label)
    try:
        advice = advise(deployment, asked, study.slo, fit=fit)
    except DseError:
        return None
    return asdict(advice) | {"curve": [point._asdict() for point in advice.curve]}
