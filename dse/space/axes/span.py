"""Evenly spaced values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from dse.base.keys import Key
from dse.space.axes._base import Axis, Read, Value
from dse.space.axes._bounds import few, number, ordered

__all__ = ["Span"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(Axis):
    """`{from: 8, to: 64, step: 8}`: 8, 16, … 64; `to` belongs to it where a step meets it."""

    start: Annotated[Value, Key("from")]
    stop: Annotated[Value, Key("to")]
    step: Value
    kind: Literal["span"] = "span"

    @classmethod
    def key(cls) -> str:
        """Only a span has a step."""
        return "step"

    def read(self, read: Read) -> Self:
        """Return the span with its bounds read; `from` above `to` or no step is an error."""
        start, stop = ordered(read(self.start), read(self.stop))
        step = number(read(self.step), "step", above=0)
        few((stop - start) / step)
        return type(self)(start=start, stop=stop, step=step)

    def values(self) -> tuple[Value, ...]:
        """Return `from`, `from + step`, … up to `to`."""
        start, stop, step = number(self.start), number(self.stop), number(self.step)
        # A count of steps, not a running sum, so that no rounding error piles up; the slack lets
        # 0.1, 0.2, 0.3 end at 0.3.
        n_steps = int((stop - start) / step * (1 + 1e-12) + 1e-9)
        return tuple(start + index * step for index in range(n_steps + 1))
