"""Kernel models: the price list of one GPU, in three tiers."""

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dse.base.digest import digest
from dse.cost.kernels._coefficients import KernelSlice, KernelTable
from dse.cost.kernels._head import blend, total
from dse.cost.kernels._reference import (
    DEFAULT_FOREIGN_INTERVAL,
    DEFAULT_PRIOR_WEIGHT,
    FOREIGN_INTERVALS,
    PRIOR_WEIGHT,
    PRIORS,
    SIBLING_INTERVAL,
    Part,
    Priced,
    Wanted,
    choose,
    kindred,
    likely,
)
from dse.cost.kernels._terms import WINDOWED, Kernel, Terms
from dse.cost.kernels._transfer import H100, Traits, Transfer
from dse.cost.work import work
from dse.hardware.gpu import GPU
from dse.model.ops import ComputeOp, Num

Tier = Literal["auto", "roofline", "cross", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineKernels:
    """Peaks, no launch time: what walls are built of."""

    gpu: GPU

    @property
    def in_step(self) -> bool:
        return False

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
    tables of the GPUs nearest to it with their distance. `asked` are engines or implementations,
    best first; `named` puts one before them for a family (`gemm`) or a format of it (`gemm/fp8`).
    """

    gpu: GPU
    asked: tuple[str, ...]
    own: KernelTable | None
    kin: tuple[tuple[KernelTable, float], ...]
    families: dict[str, Kernel]
    named: tuple[tuple[str, str], ...] = ()
    _chosen: dict[Wanted, Priced] = field(default_factory=dict, compare=False)

    @property
    def in_step(self) -> bool:
        return self.own is not None and self.own.in_step

    @property
    def tier(self) -> str:
        return "target" if self.own is not None else "cross"

    @property
    def physics_id(self) -> str:
        tables = [self.own] if self.own is not None else [table for table, _ in self.kin]
        gpu = replace(self.gpu, kernel_table="")  # what the file says counts, not where it lies
        return digest((self.tier, gpu, self.asked, self.named, [table.digest for table in tables]))

    def seconds(self, op: ComputeOp) -> Num:
        """Seconds of one run of `op`, launch included; 0 for an op without work. Array fields give
        arrays. Never less than `roofline_seconds`.
        """
        kernel, priced = self.families[op.family], self.priced(op)
        shared: dict[str | None, Terms] = {}
        opinions = []
        for part in priced.parts:
            if part.compute not in shared:
                shared[part.compute] = kernel.terms(op, self.gpu, part.compute)
            opinions.append(part.head.shares(shared[part.compute], part.transfer))
        found = total(blend(opinions, [part.weights for part in priced.parts]))
        terms = next(iter(shared.values()))
        idle = (terms.flop_s + terms.hbm_s + terms.soft_s) <= 0.0
        seconds = np.where(idle, 0.0, found)
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
        named_variant = self.families[op.family].variant(op)
        variant = named_variant.removesuffix(WINDOWED)
        d_head, named = float(np.max(getattr(op, "d_qk", 0.0))), dict(self.named)
        first = named.get(f"{op.family}/{variant}") or named.get(op.family)
        asked = self.asked if first is None else (first, *self.asked)
        wanted = Wanted(op.family, variant, d_head, asked, windowed=variant != named_variant)
        if wanted not in self._chosen:
            self._chosen[wanted] = self._own(wanted) or self._blend(wanted)
        return self._chosen[wanted]

    def _own(self, wanted: Wanted) -> Priced | None:
        for variant in wanted.variants if self.own is not None else ():
            each = choose(self.own, wanted, variant)  # type: ignore[arg-type]
            if each is not None:
                part = Part(head=each.head, compute=each.compute)
                return Priced(parts=(part,), low=each.low, high=each.high)
        return None

    def _blend(self, wanted: Wanted) -> Priced:
        """The nearest references that measured the format (else what stands in for it), each
        counting half as much per half unit of distance, and the prior beyond the architecture.
        """
        found: list[tuple[KernelSlice, KernelTable, float]] = []
        for variant in wanted.variants:
            for table, away in self.kin:
                several = FOREIGN if away >= FAR else 1
                found += [(each, table, away) for each in likely(table, wanted, variant, several)]
            if found:
                break
        nearest = found[0][2] if found else FAR
        found = [each for each in found[:BLENDED] if each[2] <= nearest + REACH]
        prior = PRIOR_WEIGHT.get(wanted.family, DEFAULT_PRIOR_WEIGHT)
        prior *= float(np.clip((nearest - NEAR) / (FAR - NEAR), 0.0, 1.0))
        raw = [0.25**away for *_, away in found]
        shares = [weight / sum(raw) for weight in raw]
        parts = [
            Part(
                head=each.head.alone,
                compute=each.compute,
                transfer=self._transfer(table, wanted.variant),
                weights=(*(3 * ((1.0 - prior) * share,)), share),
            )
            for (each, table, _), share in zip(found, shares, strict=True)
        ]
        if prior > 0.0 or not found:
            here = Traits.of(self.gpu, wanted.variant)
            transfer = Transfer.between(H100, here, kin=False)
            weights = (prior, prior, prior, 0.0) if found else Part.ALONE
            parts.append(Part(head=PRIORS[wanted.family], transfer=transfer, weights=weights))
        low, high = _spread(wanted.family, nearest)
        return Priced(parts=tuple(parts), low=low, high=high)

    def _transfer(self, table: KernelTable, variant: str) -> Transfer:
        kin = kindred(self.gpu, table)
        return Transfer.between(table.traits, Traits.of(self.gpu, variant), kin=kin)


BLENDED = 4  # opinions that a blend uses
# A new architecture runs other kernels, so several engines' are asked where none bears the name.
FOREIGN = 3
REACH = 1.2  # how much farther than the nearest a reference may be
NEAR, FAR = 1.0, 2.0  # distances within one architecture, and to another


def _spread(family: str, nearest: float) -> tuple[float, float]:
    """80% interval by distance of the nearest reference, from a sibling's to a foreigner's."""
    share = min(nearest / FAR, 1.0)
    foreign = FOREIGN_INTERVALS.get(family, DEFAULT_FOREIGN_INTERVAL)
    low, high = (
        near ** (1.0 - share) * far**share
        for near, far in zip(SIBLING_INTERVAL, foreign, strict=True)
    )
    return low, high
