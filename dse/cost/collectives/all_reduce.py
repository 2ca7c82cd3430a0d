"""All-reduce: one-shot, two-shot or ring (Patarasuk & Yuan 2009), hierarchical across nodes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dse.cost.collectives._base import Algorithm, Constants, Span, crossing, fastest, reach
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Algorithm):
    """`n_bytes` is the reduced tensor: each rank sends at least `2(n−1)/n` of it."""

    kind: Literal["all_reduce"] = "all_reduce"

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        span, size = Span.of(op, fabric), op.n_bytes
        link = fabric.scale_out if span.domains > 1 else fabric.scale_up
        if link.all_reduce_bytes_per_s is not None:
            return link.latency_s + size / link.all_reduce_bytes_per_s
        rate = reach(fabric.scale_up, span.inner)
        inside: Num = 0.0
        if span.inner > 1:
            inside = _inside(size, span.inner, rate, constants, "all_reduce")
        if span.domains == 1:
            return inside
        # Reduce-scatter inside, all-reduce of each rank's share outside, all-gather inside, by the
        # library; no domain is left in less time than the engine takes within.
        if span.inner > 1:
            library = _inside(size, span.inner, rate, constants, "library_all_reduce")
            inside = np.maximum(inside, library)
        return crossing(span, fabric, inside, self.floor_bytes(op, span)[1])

    def floor_seconds(self, op: Collective, fabric: Fabric) -> Num:
        """As for any collective; a cluster's measured algorithm bandwidth is a floor too."""
        span = Span.of(op, fabric)
        link = fabric.scale_out if span.domains > 1 else fabric.scale_up
        if link.all_reduce_bytes_per_s is not None:
            return link.latency_floor_s + op.n_bytes / link.all_reduce_bytes_per_s
        return Algorithm.floor_seconds(self, op, fabric)

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        up = 2.0 * (span.inner - 1) / span.inner * op.n_bytes
        out = 2.0 * (span.domains - 1) / span.domains * op.n_bytes / span.inner
        return up, out


def _inside(size: Num, n: int, bytes_per_s: float, constants: Constants, kind: str) -> Num:
    ring, one_shot = 2.0 * (n - 1) / n * size, float(n - 1) * size
    return fastest(constants.ladders[kind], n, ring, one_shot, bytes_per_s)
