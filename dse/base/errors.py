"""The error tree: every message names the place, what is wrong and the remedy.

::

    DseError                  exit code 1: a defect of ours
    ├── UserError             2: the user's input is wrong (also a ValueError)
    │   ├── SourceError       a file; carries all of its faults
    │   ├── CatalogError      an unknown name, or a record that contradicts itself
    │   ├── SpaceError        an axis, a link or a where-clause
    │   └── StudyError        a question that cannot be asked
    ├── InfeasibleError       3: nothing meets the constraints
    │   └── IllegalError      a deployment that no engine could start
    ├── StoreError            4: the store is locked or damaged
    └── SimulationError       1: the simulator broke one of its own invariants

A point's failure is data and never raised past the pool; a file's failure stops the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar

__all__ = [
    "CatalogError",
    "DseError",
    "Fault",
    "IllegalError",
    "InfeasibleError",
    "SimulationError",
    "SourceError",
    "SpaceError",
    "StoreError",
    "StudyError",
    "UserError",
    "did_you_mean",
]


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong in one place of a source; `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        """`file:line:column: dotted.path: message`, as editors and terminals link it."""
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class DseError(Exception):
    """Root of the tree: `message` says what is wrong and where, `remedy` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, remedy: str = "", faults: Iterable[Fault] = ()) -> None:
        super().__init__(message, remedy, tuple(faults))

    @property
    def message(self) -> str:
        """What is wrong and where."""
        return str(self.args[0])

    @property
    def remedy(self) -> str:
        """What the reader can do about it; empty where the message says it all."""
        return str(self.args[1])

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every fault found, in file order; empty unless a source is at fault."""
        faults: tuple[Fault, ...] = self.args[2]
        return faults

    def __str__(self) -> str:
        """Return message and remedy on one line."""
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class UserError(DseError, ValueError):
    """The user's input is wrong.

    It is a `ValueError` so that one raised while a record is built from a file becomes a fault with
    its place (`dse.base.source.build`).
    """

    exit_code = 2


class SourceError(UserError):
    """A file is wrong: all of its faults at once, one a line."""

    def __init__(self, faults: Sequence[Fault], remedy: str = "") -> None:
        found = tuple(sorted(set(faults)))
        DseError.__init__(self, "\n".join(map(str, found)), remedy, found)

    def __reduce__(self) -> tuple[type[SourceError], tuple[tuple[Fault, ...], str]]:
        """Rebuild from the faults, so that the error crosses a process boundary."""
        return type(self), (self.faults, self.remedy)


class CatalogError(UserError):
    """No catalog root defines a name, or a record contradicts itself."""


class SpaceError(UserError):
    """An axis, a link or a where-clause is wrong."""


class StudyError(UserError):
    """A study asks what cannot be asked."""


class InfeasibleError(DseError):
    """Nothing meets the constraints; the near misses belong in the message."""

    exit_code = 3


class IllegalError(InfeasibleError):
    """A deployment that no engine could start, with the rule that forbids it."""


class StoreError(DseError):
    """The store is locked or damaged."""

    exit_code = 4


class SimulationError(DseError):
    """The simulator broke one of its own invariants."""


def did_you_mean(word: str, options: Iterable[object]) -> str:
    """Return `"; did you mean x?"` for the nearest of `options`, or `""` if none is near.

    Case, `-`, `_` and `.` do not count: `H200_SXM` is near `h200-sxm`.
    """
    folded = {_fold(str(option)): str(option) for option in options}
    near = get_close_matches(_fold(word), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]}?" if near else ""


def _fold(word: str) -> str:
    return word.lower().replace("-", "").replace("_", "").replace(".", "")
