"""Independent arrivals: exponential gaps."""

from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import ClassVar, Literal

from dse.base.units import ReqPerSecond
from dse.serving.arrivals._base import Arrivals, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Arrivals):
    """A Poisson process of `req_per_s`."""

    cites: ClassVar[str] = "Kleinrock, Queueing Systems I (1975)"

    req_per_s: ReqPerSecond
    kind: Literal["poisson"] = "poisson"

    def __post_init__(self) -> None:
        rate(self.req_per_s)

    def times(self, n: int, random: Random) -> list[float]:
        return list(accumulate(random.expovariate(self.req_per_s) for _ in range(n)))
