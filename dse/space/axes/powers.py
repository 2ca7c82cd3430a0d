"""The powers of one base."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, takewhile
from typing import Annotated, Literal, Self

from dse.base.errors import SpaceError
from dse.base.keys import Key
from dse.space.axes._base import Axis, Read, Value
from dse.space.axes._bounds import number, ordered

__all__ = ["Powers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers(Axis):
    """`{powers_of: 2, from: 1, to: 2048}`: every power of 2 between the bounds, both included."""

    base: Annotated[int, Key("powers_of")]
    stop: Annotated[Value, Key("to")]
    start: Annotated[Value, Key("from")] = 1
    kind: Literal["powers"] = "powers"

    @classmethod
    def key(cls) -> str:
        """Only powers have a base."""
        return "powers_of"

    def read(self, read: Read) -> Self:
        """Return the axis with its bounds read; no power between them is an error."""
        if self.base < 2:
            raise SpaceError(f"powers of {self.base} do not grow", "use a base of 2 or more")
        start, stop = ordered(read(self.start), read(self.stop))
        found = type(self)(base=self.base, start=start, stop=stop)
        if not found.values():
            raise SpaceError(f"no power of {self.base} lies from {start} to {stop}")
        return found

    def values(self) -> tuple[Value, ...]:
        """Return the powers in ascending order."""
        start, stop = number(self.start), number(self.stop)
        powers = takewhile(lambda power: power <= stop, (self.base**index for index in count()))
        return tuple(power for power in powers if power >= start)
