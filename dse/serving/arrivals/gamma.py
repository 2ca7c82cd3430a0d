"""Bursty arrivals: gamma-distributed gaps."""

from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import ClassVar, Literal

from dse.base.errors import UserError
from dse.base.units import ReqPerSecond
from dse.serving.arrivals._base import Arrivals, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma(Arrivals):
    """Gaps of mean 1 / `req_per_s` and coefficient of variation `cv` (1 is Poisson, above bursty);
    the shape is 1 / cv².
    """

    cites: ClassVar[str] = "AlpaServe, arXiv:2302.11665, section 6"

    req_per_s: ReqPerSecond
    cv: float
    kind: Literal["gamma"] = "gamma"

    def __post_init__(self) -> None:
        rate(self.req_per_s)
        if not 0 < self.cv < float("inf"):
            raise UserError(f"cv is {self.cv}", "give a positive coefficient of variation")

    def times(self, n: int, random: Random) -> list[float]:
        shape = 1.0 / self.cv**2
        scale = 1.0 / (self.req_per_s * shape)
        return list(accumulate(random.gammavariate(shape, scale) for _ in range(n)))
