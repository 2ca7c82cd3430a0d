"""Every request the same length."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from dse.base.units import Tokens
from dse.serving.lengths._base import Lengths, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Lengths):
    """`n_tokens` each."""

    n_tokens: Tokens
    kind: Literal["constant"] = "constant"

    def __post_init__(self) -> None:
        positive("n_tokens", self.n_tokens)

    def at(self, quantile: float) -> int:
        return self.n_tokens

    def mean(self) -> float:
        return float(self.n_tokens)

    def scaled(self, factor: float) -> Self:
        return replace(self, n_tokens=max(1, round(self.n_tokens * factor)))
