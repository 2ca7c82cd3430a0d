"""A list of values, or one value: the axis as YAML's own list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from dse.base.errors import SpaceError
from dse.space.axes._base import Axis, Read, Value

__all__ = ["Choice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Axis):
    """`[1, 2, 8]`: these values, in this order."""

    of: tuple[Value, ...]
    kind: Literal["choice"] = "choice"

    @classmethod
    def key(cls) -> None:
        """A list has no key."""

    def read(self, read: Read) -> Self:
        """Return the axis with each value read; an empty list or a repeated value is an error."""
        values = tuple(map(read, self.of))
        if not values:
            raise SpaceError("the axis is empty", "give at least one value or leave the key out")
        twice = sorted({str(value) for value in values if values.count(value) > 1})
        if twice:
            raise SpaceError(f"the axis repeats {', '.join(twice)}", "each value stands once")
        return type(self)(of=values)

    def values(self) -> tuple[Value, ...]:
        """Return the values as listed."""
        return self.of
