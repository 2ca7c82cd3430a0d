"""What a study will cost to answer: simulations and CPU seconds, before any is run."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from dse.space import Block, numeric
from dse.space.blocks import Blocks
from dse.study.asked import Load
from dse.study.study import Study

__all__ = ["SHARES", "Legal", "Prediction", "predict", "predicted_s"]

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


@dataclass(slots=True)
class Legal:
    """The legal and the illegal points of the blocks added, and the CPU seconds that simulating all
    of the former takes. Legality does not depend on numeric axes, so structures are counted and
    multiplied.
    """

    study: Study
    n_legal: int = 0
    n_illegal: int = 0
    seconds: float = 0.0
    _known: dict[tuple[str, int], float] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        """Count one block of the study's space."""
        name = block.branch.name
        inner = numeric(self.study.space, name)
        n_rows, legal = block.rows().height, block.legal()
        self.n_illegal += (n_rows - legal.height) * inner.height
        self.n_legal += legal.height * inner.height
        for replicas, count in legal.group_by("n_replicas").len().iter_rows():
            if (name, replicas) not in self._known:
                self._known[name, replicas] = _seconds(self.study, inner, replicas)
            self.seconds += count * self._known[name, replicas]


def predict(study: Study, legal: Legal | None = None) -> Prediction:
    """Return the cost of answering `study` without any result at hand; `legal` has all its blocks,
    if they are counted already.
    """
    if legal is None:
        legal = Legal(study)
        for block in Blocks(study.space, study.catalog):
            legal.add(block)
    n_legal, n_illegal, seconds = legal.n_legal, legal.n_illegal, legal.seconds
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


def _seconds(study: Study, inner: pl.DataFrame, replicas: int) -> float:
    """Return the seconds that simulating every numeric row of one structure takes."""
    if "batch" in inner.columns:
        inner = inner.with_columns(concurrency=pl.col("batch") * replicas)
    return float(inner.select(predicted_s(study).sum()).item() or 0.0)
