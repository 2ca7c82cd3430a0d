"""A closed loop: each finished request is followed by the next."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from dse.base.errors import UserError
from dse.base.units import Count
from dse.serving.arrivals._base import Arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop(Arrivals):
    """`concurrency` requests in flight, while there are any left."""

    concurrency: Count
    kind: Literal["closed_loop"] = "closed_loop"

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UserError(f"concurrency is {self.concurrency}", "give at least 1")

    @property
    def concurrency_limit(self) -> int | None:
        return self.concurrency

    def times(self, n: int, random: Random) -> list[float]:
        return [0.0] * n
