"""Kernel models: the price list of one GPU, in three tiers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dse.base.digest import digest
from dse.cost.kernels._coefficients import KernelTable
from dse.cost.kernels._reference import PRIOR_INTERVAL, PRIORS, Priced, choose
from dse.cost.kernels._terms import Kernel, Terms
from dse.cost.work import work
from dse.hardware.gpu import GPU
from dse.model.ops import ComputeOp, Num

Tier = Literal["auto", "roofline", "cross", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineKernels:
    """Peaks, no launch time: what walls are built of."""

    gpu: GPU

    @property
    def tier(self) -> str:
        return "roofline"

    @property
    def physics_id(self) -> str:
        return digest(("roofline", self.gpu))

    def seconds(self, op: ComputeOp) -> Num:
        """Seconds at the GPU's peaks."""
        return self.roofline_seconds(op)

    def roofline_seconds(self, op: ComputeOp) -> Num:
        """Seconds at the GPU's peaks: the slower of arithmetic and HBM."""
        done = work(op)
        return np.maximum(done.flop_seconds(self.gpu), done.hbm_seconds(self.gpu))

    def interval(self, op: ComputeOp) -> tuple[Num, Num]:
        """No kernel is faster; how much slower a roofline does not say."""
        return 1.0, float("inf")


@dataclass(frozen=True, kw_only=True)
class FittedKernels:
    """Kernel times from fitted heads: `own` is the GPU's table (None in the cross tier), `kin` the
    tables of the GPUs nearest to it with their distance. `engine` is an engine or implementation.
    """

    gpu: GPU
    engine: str | None
    own: KernelTable | None
    kin: tuple[tuple[KernelTable, float], ...]
    families: dict[str, Kernel]
    _chosen: dict[tuple[str, str, float], Priced] = field(default_factory=dict, compare=False)

    @property
    def tier(self) -> str:
        return "target" if self.own is not None else "cross"

    @property
    def physics_id(self) -> str:
        tables = [self.own] if self.own is not None else [table for table, _ in self.kin]
        return digest((self.tier, self.gpu, self.engine, [table.digest for table in tables]))

    def seconds(self, op: ComputeOp) -> Num:
        """Seconds of one run of `op`, launch included; 0 for an op without work. Array fields give
        arrays. Never less than `roofline_seconds`.
        """
        kernel = self.families[op.family]
        total: Any = 0.0
        shared: dict[str | None, Terms] = {}
        for head, compute, weight in self.priced(op).parts:
            if compute not in shared:
                shared[compute] = kernel.terms(op, self.gpu, compute)
            total = total + weight * np.log(head.seconds(shared[compute]))
        terms = next(iter(shared.values()))
        idle = (terms.flop_s + terms.hbm_s + terms.soft_s) <= 0.0
        seconds = np.where(idle, 0.0, np.exp(total))
        return seconds if seconds.ndim else float(seconds)

    def roofline_seconds(self, op: ComputeOp) -> Num:
        """Seconds at the GPU's peaks."""
        return RooflineKernels(gpu=self.gpu).roofline_seconds(op)

    def interval(self, op: ComputeOp) -> tuple[Num, Num]:
        """Factors (low, high) of an 80% prediction interval around `seconds`."""
        priced = self.priced(op)
        return priced.low, priced.high

    def priced(self, op: ComputeOp) -> Priced:
        """The heads that price `op`, chosen once per number format and head size."""
        variant = self.families[op.family].variant(op)
        d_head = float(np.max(getattr(op, "d_qk", 0.0)))
        key = (op.family, variant, d_head)
        if key not in self._chosen:
            self._chosen[key] = self._choose(*key)
        return self._chosen[key]

    def _choose(self, family: str, variant: str, d_head: float) -> Priced:
        if self.own is not None:
            mine = choose(self.own, family, variant, self.engine, d_head)
            if mine is not None:
                parts = ((mine.head, mine.compute, 1.0),)
                return Priced(parts=parts, low=mine.low, high=mine.high)
        return self._blend(family, variant, d_head)

    def _blend(self, family: str, variant: str, d_head: float) -> Priced:
        """Kin by nearness, and the prior with the weight of a GPU at distance `PRIOR_DISTANCE`."""
        found = [
            (each, PRIOR_DISTANCE_DECAY ** (2.0 * away), away)
            for table, away in self.kin
            if (each := choose(table, family, variant, self.engine, d_head)) is not None
        ]
        prior_weight = PRIOR_DISTANCE_DECAY ** (2.0 * PRIOR_DISTANCE)
        total = prior_weight + sum(weight for _, weight, _ in found)
        parts: list[tuple[Any, str | None, float]] = [
            (each.head, each.compute, weight / total) for each, weight, _ in found
        ]
        parts.append((PRIORS[family], None, prior_weight / total))
        return Priced(parts=tuple(parts), **_spread([away for *_, away in found]))


# A reference GPU loses half of its weight every half unit of distance; the prior stands as far away
# as a GPU of another architecture with the same balance.
PRIOR_DISTANCE_DECAY = 0.5
PRIOR_DISTANCE = 2.0


def _spread(distances: Sequence[float]) -> dict[str, float]:
    """Interval factors by distance of the nearest reference: ±12% at hand, the prior's far away."""
    away = min(distances, default=PRIOR_DISTANCE)
    share = min(away / PRIOR_DISTANCE, 1.0)
    low, high = PRIOR_INTERVAL
    return {"low": 0.88 + share * (low - 0.88), "high": 1.14 + share * (high - 1.14)}
