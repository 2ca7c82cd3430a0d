"""All-to-all: every rank sends an equal share of its buffer to every other."""

from dataclasses import dataclass
from typing import Literal

from dse.cost.collectives._base import (
    Algorithm,
    Constants,
    Span,
    crossing,
    fastest,
    reach,
)
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAll(Algorithm):
    """`n_bytes` is what one rank holds: `1/n` goes to each rank, itself included."""

    kind: Literal["all_to_all"] = "all_to_all"

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        span = Span.of(op, fabric)
        up, out = self.floor_bytes(op, span)
        rate = reach(fabric.scale_up, span.inner)
        inside: Num = 0.0
        if span.inner > 1:
            # What leaves first goes to the GPU on its rail (PXN of NCCL 2.12), or by the same PCIe.
            sent = up + out
            inside = fastest(constants.ladders["all_to_all"], span.inner, sent, sent, rate)
        return inside if span.domains == 1 else crossing(span, fabric, inside, out)

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        return (span.inner - 1) / span.n * op.n_bytes, (span.n - span.inner) / span.n * op.n_bytes
