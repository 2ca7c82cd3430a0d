"""How long ranks take to talk: message-aware collectives on a scale-up domain and a network."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dse.base.digest import digest
from dse.base.family import Family
from dse.cost.collectives import _coefficients
from dse.cost.collectives._base import Algorithm, Constants, Exchange, Protocol, Span
from dse.cost.collectives._coefficients import ASSUMED_INTERVAL, MEASURED_INTERVAL, Found
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num

COLLECTIVES = Family(__name__, Algorithm)

__all__ = [
    "COLLECTIVES",
    "Algorithm",
    "CollectiveModel",
    "Constants",
    "Exchange",
    "Protocol",
    "Span",
    "collective_model",
]


@dataclass(frozen=True, kw_only=True)
class CollectiveModel:
    """Times collectives on one fabric. `found` holds fitted constants; None in tier `floor`."""

    fabric: Fabric
    found: Found | None
    _parts: dict[str, Algorithm] = field(
        default_factory=lambda: {kind: part() for kind, part in COLLECTIVES.items()}, compare=False
    )

    @property
    def tier(self) -> str:
        """`floor`, `target` (the fabric was measured) or `cross` (one like it was)."""
        if self.found is None:
            return "floor"
        return "target" if self.found.exact else "cross"

    @property
    def physics_id(self) -> str:
        """Digest of all that decides a time."""
        coefficients = "" if self.found is None else _coefficients.load()[0]
        return digest((self.tier, self.fabric, coefficients))

    def seconds(self, op: Collective) -> Num:
        """Seconds of `op`; 0 for a single rank or no bytes. Never less than the floor."""
        if op.n_ranks <= 1:
            return 0.0 * op.n_bytes
        part = self._parts[op.kind]
        seconds = part.floor_seconds(op, self.fabric)
        if self.found is not None:
            seconds = np.maximum(seconds, part.seconds(op, self.fabric, self.found.constants))
        return np.where(np.greater(op.n_bytes, 0.0), seconds, 0.0)[()]

    def interval(self, op: Collective) -> tuple[float, float]:
        """Factors (low, high) of an 80% interval: wide where the fabric or the span was not
        measured (across domains only expert exchange was, and that on NVLink alone).
        """
        if self.found is None:
            return 1.0, float("inf")
        crosses = Span.of(op, self.fabric).domains > 1
        exchange = op.kind in ("ep_dispatch", "ep_combine")
        known = self.found.exact and (self.fabric.kind == "nvlink" if exchange else not crosses)
        return MEASURED_INTERVAL if known else ASSUMED_INTERVAL


def collective_model(
    fabric: Fabric, engine_impl: str | None = None, tier: Literal["auto", "floor"] = "auto"
) -> CollectiveModel:
    """The collective model of `fabric`: fitted constants of the engine's own all-reduce
    (`vllm`, `sglang`, `trtllm`; `nccl` for the library), or the floor latencies of its links.
    """
    found = None if tier == "floor" else _coefficients.find(fabric, engine_impl)
    return CollectiveModel(fabric=fabric, found=found)
