"""Kernel models: the price list of one GPU, in three tiers."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from dse.base.digest import digest
from dse.cost.kernels._coefficients import KernelSlice, KernelTable
from dse.cost.kernels._head import Head
from dse.cost.kernels._reference import (
    DEFAULT_PRIOR_WEIGHT,
    PRIOR_INTERVAL,
    PRIOR_WEIGHT,
    PRIORS,
    Priced,
    Wanted,
    choose,
)
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
    asked: tuple[str, ...]
    own: KernelTable | None
    kin: tuple[tuple[KernelTable, float], ...]
    families: dict[str, Kernel]
    _chosen: dict[Wanted, Priced] = field(default_factory=dict, compare=False)

    @property
    def tier(self) -> str:
        return "target" if self.own is not None else "cross"

    @property
    def physics_id(self) -> str:
        tables = [self.own] if self.own is not None else [table for table, _ in self.kin]
        return digest((self.tier, self.gpu, self.asked, [table.digest for table in tables]))

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
        wanted = Wanted(op.family, variant, float(np.max(getattr(op, "d_qk", 0.0))), self.asked)
        if wanted not in self._chosen:
            self._chosen[wanted] = self._own(wanted) or self._blend(wanted)
        return self._chosen[wanted]

    def _own(self, wanted: Wanted) -> Priced | None:
        for variant in wanted.variants if self.own is not None else ():
            each = choose(self.own, wanted, variant)  # type: ignore[arg-type]
            if each is not None:
                parts = ((each.head, each.compute, 1.0),)
                return Priced(parts=parts, low=each.low, high=each.high)
        return None

    def _blend(self, wanted: Wanted) -> Priced:
        """The nearest references that measured the format (else what stands in for it), each
        counting half as much per half unit of distance, and the prior beyond the architecture.
        """
        found: list[tuple[KernelSlice, float]] = []
        for variant in wanted.variants:
            chosen = [(choose(table, wanted, variant), away) for table, away in self.kin]
            found = [(each, away) for each, away in chosen if each is not None][:BLENDED]
            if found:
                break
        nearest = found[0][1] if found else FAR
        prior = PRIOR_WEIGHT.get(wanted.family, DEFAULT_PRIOR_WEIGHT)
        prior *= float(np.clip((nearest - NEAR) / (FAR - NEAR), 0.0, 1.0))
        raw = [0.25**away for _, away in found]
        parts: list[tuple[Head, str | None, float]] = [
            (each.head, each.compute, (1.0 - prior) * weight / sum(raw))
            for (each, _), weight in zip(found, raw, strict=True)
        ]
        if prior > 0.0 or not found:
            parts.append((PRIORS[wanted.family], None, prior if found else 1.0))
        low, high = _spread(nearest)
        return Priced(parts=tuple(parts), low=low, high=high)


BLENDED = 3  # references that a blend uses
NEAR, FAR = 1.0, 2.0  # distances within one architecture, and to another


def _spread(nearest: float) -> tuple[float, float]:
    """80% interval by distance of the nearest reference: tight at hand, the prior's far away."""
    share = min(nearest / FAR, 1.0)
    low, high = PRIOR_INTERVAL
    return 0.90 + share * (low - 0.90), 1.12 + share * (high - 1.12)
