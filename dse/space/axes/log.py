"""Logarithmically spaced values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from dse.base.errors import SpaceError
from dse.base.keys import Key
from dse.space.axes._base import Axis, Read, Value
from dse.space.axes._bounds import few, number, ordered

__all__ = ["Log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Axis):
    """`{log: [1, 1000], per_decade: 4}`: four values a decade, both bounds included.

    Between whole bounds the values are rounded to whole numbers, and equal ones are kept once.
    """

    bounds: Annotated[tuple[Value, Value], Key("log")]
    per_decade: int
    kind: Literal["log"] = "log"

    @classmethod
    def key(cls) -> str:
        """Only this form has logarithmic bounds."""
        return "log"

    def read(self, read: Read) -> Self:
        """Return the axis with its bounds read; a bound of 0 or no value a decade is an error."""
        low, high = ordered(*map(read, self.bounds))
        if low <= 0:
            raise SpaceError(f"a logarithmic axis cannot start at {low}", "start above 0")
        if self.per_decade < 1:
            raise SpaceError(f"{self.per_decade} values per decade are none", "use 1 or more")
        few(math.log10(high / low) * self.per_decade)
        return type(self)(bounds=(low, high), per_decade=self.per_decade)

    def values(self) -> tuple[Value, ...]:
        """Return the values in ascending order."""
        low, high = map(number, self.bounds)
        whole = isinstance(low, int) and isinstance(high, int)
        n_steps = math.ceil(math.log10(high / low) * self.per_decade - 1e-9)
        inner = [low * 10 ** (index / self.per_decade) for index in range(1, n_steps)]
        between = [round(value) for value in inner] if whole else inner
        return tuple(dict.fromkeys([low, *between, high]))
