"""Reduce-scatter: each rank ends with its share of the sum; the transpose of an all-gather."""

from dataclasses import dataclass
from typing import Literal

from dse.cost.collectives._base import Algorithm, Constants, Span
from dse.cost.collectives.all_gather import gathered, gathered_bytes
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceScatter(Algorithm):
    """`n_bytes` is the whole that is reduced: each rank sends `(n−1)/n` of it."""

    kind: Literal["reduce_scatter"] = "reduce_scatter"

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        return gathered(op, fabric, constants, "reduce_scatter")

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        return gathered_bytes(op, span)
