"""Arrivals at equal distances."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from dse.base.units import ReqPerSecond
from dse.serving.arrivals._base import Arrivals, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRate(Arrivals):
    """One request every 1 / `req_per_s`, the first at time 0."""

    req_per_s: ReqPerSecond
    kind: Literal["constant"] = "constant"

    def __post_init__(self) -> None:
        rate(self.req_per_s)

    def times(self, n: int, random: Random) -> list[float]:
        return [i / self.req_per_s for i in range(n)]
