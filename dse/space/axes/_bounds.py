"""What the bounds of a range must be."""

from __future__ import annotations

from dse.base.errors import SpaceError
from dse.space.axes._base import Value

__all__ = ["number", "ordered"]


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
