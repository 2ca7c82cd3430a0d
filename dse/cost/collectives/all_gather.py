"""All-gather: each rank ends with the whole; and its transpose, reduce-scatter."""

from dataclasses import dataclass
from typing import Literal

from dse.cost.collectives._base import Algorithm, Constants, Span, crossing, fastest, reach
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather(Algorithm):
    """`n_bytes` is the gathered whole: each rank receives `(n−1)/n` of it."""

    kind: Literal["all_gather"] = "all_gather"

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        return gathered(op, fabric, constants, "all_gather")

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        return gathered_bytes(op, span)


def gathered(op: Collective, fabric: Fabric, constants: Constants, kind: str) -> Num:
    """Seconds inside the domain and, for the share that crosses, on the network."""
    span = Span.of(op, fabric)
    up, out = gathered_bytes(op, span)
    inside: Num = 0.0
    if span.inner > 1:
        rate = reach(fabric.scale_up, span.inner)
        inside = fastest(constants.ladders[kind], span.inner, up, up, rate)
    if span.domains == 1:
        return inside
    return crossing(span, fabric, inside, out)


def gathered_bytes(op: Collective, span: Span) -> tuple[Num, Num]:
    """Bytes a rank receives from its domain and, sharing the load with its peers, from outside."""
    up = (span.inner - 1) / span.inner * op.n_bytes
    out = (span.domains - 1) / span.domains * op.n_bytes / span.inner
    return up, out
