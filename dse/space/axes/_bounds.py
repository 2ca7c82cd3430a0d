"""What the bounds of a range must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dse.base.errors import SpaceError
from dse.base.units import CountUnit
from dse.space.axes._base import Value

__all__ = ["LARGEST", "Positive", "few", "number", "ordered"]

LARGEST = 10**12
MOST_VALUES = 10**6


@dataclass(frozen=True, slots=True)
class _PositiveUnit(CountUnit):
    """A count from 1 to 10¹², which no product of a few can take past 64 bits."""

    def read(self, value: object) -> int:
        """Return the count; 0 is an error as well."""
        count = CountUnit.read(self, value)
        if not 1 <= count <= LARGEST:
            raise SpaceError(f"{value!r} is not from 1 to {LARGEST:.0e}")
        return count


Positive = Annotated[int, _PositiveUnit()]


def few(count: float) -> int:
    """Return the number of values of a range; more than a million are an error."""
    if count > MOST_VALUES:
        raise SpaceError(
            f"the range has {count:.3g} values, more than {MOST_VALUES:.0e}",
            "take larger steps, or {log: [a, b], per_decade: n}",
        )
    return int(count)


def number(value: Value, name: str = "a bound", *, above: float | None = None) -> int | float:
    """Return `value` if it is a number and, where asked, above a limit."""
    if isinstance(value, str):
        raise SpaceError(f"{name} is {value!r}; a range needs numbers", "list the values instead")
    if above is not None and value <= above:
        raise SpaceError(f"{name} is {value}; it must be above {above:g}")
    return value


def ordered(start: Value, stop: Value) -> tuple[int | float, int | float]:
    """Return two bounds in order; a range that ends before it starts is an error."""
    low, high = number(start, "from"), number(stop, "to")
    if low > high:
        raise SpaceError(f"the range from {low} to {high} is empty", "swap the bounds")
    return low, high
