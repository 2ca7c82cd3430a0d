"""The contract of an axis: a dimension's values, in order, known in number before they are used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

__all__ = ["Axis", "Read", "Value"]

Value = str | int | float
Read = Callable[[object], Value]
"""Turns what YAML says into a value, as `Unit.read` does; an impossible one is a `UserError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis(ABC):
    """An ordered set of values. YAML recognises a form by its `key`, so no `kind` is written."""

    @classmethod
    @abstractmethod
    def key(cls) -> str | None:
        """Return the YAML key that only this form has; None for the form that is a list."""

    @abstractmethod
    def read(self, read: Read) -> Self:
        """Return the axis with each bound read; a range that holds no value is an error."""

    @abstractmethod
    def values(self) -> tuple[Value, ...]:
        """Return the values in order, each once."""

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self.values())
