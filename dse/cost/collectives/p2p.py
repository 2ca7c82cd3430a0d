"""Point to point: a pipeline stage sends its activations to the next."""

from dataclasses import dataclass
from typing import Literal

from dse.cost.collectives._base import Algorithm, Constants, Span
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num

EFFICIENCY = 0.8  # share of a link that one large transfer reaches
# A single transfer starts in half the time of a collective: 17 µs against 33 across H100 nodes
# (microsoft/vidur send/receive tables; Floor First, arXiv:2607.05876).
NETWORK_START = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class P2P(Algorithm):
    """`n_bytes` is the payload of one pair."""

    kind: Literal["p2p"] = "p2p"

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        crosses = Span.of(op, fabric).domains > 1
        link = fabric.scale_out if crosses else fabric.scale_up
        start = min(each.base_s for each in constants.ladders["all_gather"])
        if crosses:
            start = max(start, NETWORK_START * link.latency_s)
        return start + op.n_bytes / (EFFICIENCY * link.bytes_per_s * link.peer_fraction)

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        return (op.n_bytes, 0.0) if span.domains == 1 else (0.0, op.n_bytes)
