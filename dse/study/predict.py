"""What a study will cost to answer: simulations and CPU seconds, before any is run."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dse.space import numeric
from dse.space.blocks import Blocks
from dse.study.asked import Load
from dse.study.study import Study

__all__ = ["SHARES", "Prediction", "predict", "predicted_s"]

SHARES = {"bound": (0.02, 0.2), "exhaustive": (1.0, 1.0), "optuna": (1.0, 1.0)}
"""The share of the legal points that a method simulates, from little to much."""

PROBES = 8
"""Simulations that bracket and bisect the highest rate of one deployment."""

IN_FLIGHT = 32.0
"""Requests that run together under a rate that suits the deployment."""

# The compiled step loop on one core of a small machine: seconds a run, a request, a step.
RUN_S, REQUEST_S, STEP_S = 1e-3, 7e-6, 2.2e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The least and the most that answering a study is expected to take.

    `n_illegal` points are killed by legality alone; walls kill more, so both are upper estimates.
    """

    n_illegal: int
    n_simulations: tuple[int, int]
    cpu_s: tuple[float, float]


def predict(study: Study) -> Prediction:
    """Return the cost of answering `study` without any result at hand."""
    n_legal, n_illegal, seconds = _legal(study)
    low, high = SHARES[study.search.method]
    runs = study.search.seeds * (PROBES if study.is_load_searched else 1)
    mean_s = seconds / n_legal if n_legal else 0.0
    budget = n_legal if study.search.most is None else study.search.most
    counts = (min(round(n_legal * low), budget) * runs, min(round(n_legal * high), budget) * runs)
    return Prediction(
        n_illegal=n_illegal,
        n_simulations=counts,
        cpu_s=(counts[0] * mean_s, counts[1] * mean_s),
    )


def predicted_s(study: Study) -> pl.Expr:
    """Return the CPU seconds that simulating a point once takes, from its row of POINTS.

    The needed columns are `osl_tokens`, the replicas, and `concurrency` or `req_per_s`.
    """
    requests = _requests(study)
    steps = requests * pl.col("osl_tokens") / pl.max_horizontal(_in_flight(study), 1)
    return (RUN_S + requests * REQUEST_S + steps * STEP_S).alias("predicted_s")


def _requests(study: Study) -> pl.Expr:
    asked = study.asked.file.requests
    if asked is None:
        return pl.lit(float(study.asked.workload(1, 1, Load()).n_requests))
    count = pl.lit(float(asked.count))
    return count * pl.col("concurrency") if asked.per_concurrency else count


def _in_flight(study: Study) -> pl.Expr:
    """Return the requests that decode together, or a usual number where the load does not say."""
    closed = study.load in {"closed_loop", "concurrency"}
    return pl.col("concurrency").cast(pl.Float64) if closed else pl.lit(IN_FLIGHT)


def _legal(study: Study) -> tuple[int, int, float]:
    """Return the legal and the illegal points, and the seconds that simulating all of them takes.

    Legality does not depend on numeric axes, so structures are counted and multiplied.
    """
    n_legal = n_illegal = 0
    seconds = 0.0
    for block in Blocks(study.space, study.catalog):
        inner = numeric(study.space, block.branch.name)
        n_rows, legal = block.rows().height, block.legal()
        n_illegal += (n_rows - legal.height) * inner.height
        n_legal += legal.height * inner.height
        for replicas, count in legal.group_by("n_replicas").len().iter_rows():
            seconds += count * _seconds(study, inner, replicas)
    return n_legal, n_illegal, seconds


def _seconds(study: Study, inner: pl.DataFrame, replicas: int) -> float:
    """Return the seconds that simulating every numeric row of one structure takes."""
    if "batch" in inner.columns:
        inner = inner.with_columns(concurrency=pl.col("batch") * replicas)
    return float(inner.select(predicted_s(study).sum()).item() or 0.0)
