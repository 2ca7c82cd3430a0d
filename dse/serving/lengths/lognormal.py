"""Log-normal lengths: the shape of answers in public traces."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar, Literal, Self

from dse.base.errors import UserError
from dse.base.units import Tokens
from dse.serving.lengths._base import Lengths, positive

_STANDARD = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Lengths):
    """Lengths of mean `mean_tokens` and coefficient of variation `cv`, cut at `max_tokens`.

    The logarithm is normal with variance ln(1 + cv²), so that the mean is the stated one before
    rounding and cutting.
    """

    cites: ClassVar[str] = "Splitwise, arXiv:2311.18677, figure 3"

    mean_tokens: Tokens
    cv: float
    max_tokens: Tokens | None = None
    kind: Literal["lognormal"] = "lognormal"

    def __post_init__(self) -> None:
        positive("mean", self.mean_tokens)
        if not 0 < self.cv < math.inf:
            raise UserError(f"cv is {self.cv}", "give a positive coefficient of variation")

    def at(self, quantile: float) -> int:
        variance = math.log(1.0 + self.cv**2)
        z = _STANDARD.inv_cdf(min(max(quantile, 1e-12), 1.0 - 1e-12))
        drawn = math.exp(math.log(self.mean_tokens) - variance / 2.0 + math.sqrt(variance) * z)
        n_tokens = max(1, round(drawn))
        return n_tokens if self.max_tokens is None else min(n_tokens, self.max_tokens)

    def mean(self) -> float:
        n = 1000
        return sum(self.at((i + 0.5) / n) for i in range(n)) / n

    def scaled(self, factor: float) -> Self:
        longest = None if self.max_tokens is None else max(1, round(self.max_tokens * factor))
        mean = max(1, round(self.mean_tokens * factor))
        return replace(self, mean_tokens=mean, max_tokens=longest)
