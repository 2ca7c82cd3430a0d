"""An offline job: every request is there at the start."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from dse.serving.arrivals._base import Arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class AllAtOnce(Arrivals):
    """All requests arrive at time 0."""

    kind: Literal["all_at_once"] = "all_at_once"

    def times(self, n: int, random: Random) -> list[float]:
        return [0.0] * n
