"""The contract of a length distribution."""

from dataclasses import dataclass
from typing import ClassVar, Self

from dse.base.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of token counts, never below 1."""

    cites: ClassVar[str] = ""

    def at(self, quantile: float) -> int:
        """Tokens at `quantile` in [0, 1): the inverse of the distribution function."""
        raise NotImplementedError

    def mean(self) -> float:
        """Expected tokens."""
        raise NotImplementedError

    def scaled(self, factor: float) -> Self:
        """The same distribution with every length multiplied by `factor`."""
        raise NotImplementedError


def positive(name: str, value: float) -> None:
    """Refuse a length below one token, NaN included."""
    if not value >= 1:
        raise UserError(f"{name} is {value}", "a length is at least 1 token")
