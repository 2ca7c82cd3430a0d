"""Every request the same length."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

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

    def each_at(self, quantiles: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.full(len(quantiles), self.n_tokens, dtype=np.int64)

    def mean(self) -> float:
        return float(self.n_tokens)

    def scaled(self, factor: float) -> Self:
        return replace(self, n_tokens=max(1, round(self.n_tokens * factor)))
