"""Lengths spread evenly over a range, as serving benchmarks draw them."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from dse.base.errors import UserError
from dse.base.units import Tokens
from dse.serving.lengths._base import Lengths, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(Lengths):
    """Whole numbers from `low_tokens` to `high_tokens`, both included."""

    cites: ClassVar[str] = "vLLM benchmark_serving.py --random-range-ratio"

    low_tokens: Tokens
    high_tokens: Tokens
    kind: Literal["uniform"] = "uniform"

    def __post_init__(self) -> None:
        positive("low", self.low_tokens)
        if self.high_tokens < self.low_tokens:
            raise UserError(f"high {self.high_tokens} is below low {self.low_tokens}", "swap them")

    def at(self, quantile: float) -> int:
        return self.low_tokens + int(quantile * (self.high_tokens - self.low_tokens + 1))

    def mean(self) -> float:
        return (self.low_tokens + self.high_tokens) / 2.0

    def scaled(self, factor: float) -> Self:
        low, high = round(self.low_tokens * factor), round(self.high_tokens * factor)
        return replace(self, low_tokens=max(1, low), high_tokens=max(1, high))
