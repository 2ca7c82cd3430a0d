"""What a report is made of: the outcome of one study, read back from the store or fresh."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from dse.study import Study


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """How many points each step removed. `killed` is per wall, `illegal` per legality rule,
    `screened` per screen of the study; all count points.
    """

    n_candidates: int
    illegal: Mapping[str, int] = field(default_factory=dict)
    killed: Mapping[str, int] = field(default_factory=dict)
    screened: Mapping[str, int] = field(default_factory=dict)
    n_survivors: int = 0
    n_simulated: int = 0
    n_reused: int = 0
    n_dropped_by_bound: int = 0
    n_failed: int = 0

    def n_open(self, n_results: int) -> int:
        """Survivors that were neither among `n_results` nor proved needless: the search ended
        before.
        """
        return max(self.n_survivors - self.n_dropped_by_bound - n_results, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One study's answer.

    `results`: one row a simulated point: the point's columns (model, gpu, n_gpus, engine, weights,
    kv, branch, tp … n_replicas, isl_tokens, osl_tokens, batch, concurrency or req_per_s), its
    metrics (means over replicates), objectives, prices, `feasible` (SLO and constraints met) and
    `on_front`. `front`: the feasible non-dominated rows, best first by the first objective.
    `near_misses`: killed or infeasible points with `reason`, `demand`, `limit`, `unit`, `margin`
    and `remedy`. `details`: per front `point_id`, the walls description and step breakdown.
    `sketches`: rows of the store's `latency_sketch` of the points in `results`, if at hand.
    `certificate`: what the search proved. `provenance`: versions, digests, seeds, command.
    """

    study: "Study"
    results: pl.DataFrame
    front: pl.DataFrame
    near_misses: pl.DataFrame
    funnel: Funnel
    details: Mapping[str, Mapping[str, Any]]
    certificate: Mapping[str, Any]
    provenance: Mapping[str, Any]
    notes: Sequence[str] = ()
    sketches: pl.DataFrame | None = None

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The recommended row: first of the front; None when nothing is feasible."""
        return self.front.row(0, named=True) if self.front.height else None

    @property
    def n_open(self) -> int:
        """Survivors that were neither simulated nor proved needless."""
        return self.funnel.n_open(self.results.height)
