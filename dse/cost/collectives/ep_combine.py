"""Expert combine: the experts' results return to their tokens' ranks and are summed (DeepEP)."""

from dataclasses import dataclass
from typing import Literal

from dse.cost.collectives._base import Algorithm, Constants, Span
from dse.cost.collectives.ep_dispatch import copies, exchanged
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num


@dataclass(frozen=True, slots=True, kw_only=True)
class EPCombine(Algorithm):
    """`n_bytes` is what one rank's tokens weigh once, in the 16-bit results."""

    kind: Literal["ep_combine"] = "ep_combine"

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        return exchanged(op, fabric, constants)

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        return copies(op, span, deduplicates=True)
