"""Column schemas of the pipeline's frames, and the check at each seam between stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import polars as pl
from polars.datatypes import DataTypeClass

from dse.base.errors import DseError

__all__ = ["Column", "Schema", "require"]

F = TypeVar("F", pl.DataFrame, pl.LazyFrame)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its polars type and what it means; the unit is in its name."""

    dtype: pl.DataType | DataTypeClass
    description: str


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that a stage adds or needs, by name; `name` is the frame's in messages."""

    name: str
    columns: Mapping[str, Column]

    @property
    def dtypes(self) -> dict[str, pl.DataType | DataTypeClass]:
        """The polars type of each column, as `pl.DataFrame(schema=…)` takes them."""
        return {name: column.dtype for name, column in self.columns.items()}

    def empty(self) -> pl.DataFrame:
        """Return a frame of no rows."""
        return pl.DataFrame(schema=self.dtypes)

    def __add__(self, other: Schema) -> Schema:
        """Return the schema of a frame that a stage has widened by `other`."""
        return Schema(other.name, {**self.columns, **other.columns})


def require(frame: F, schema: Schema) -> F:
    """Return `frame` if it has every column of `schema`, each of its type; more may stand beside.

    A frame that has not is a defect of the stage before, so the error is a plain `DseError`.
    """
    found = frame.collect_schema()
    wrong = [
        f"{name} is {found[name]}, not {column.dtype}" if name in found else f"{name} is missing"
        for name, column in schema.columns.items()
        if found.get(name) != column.dtype
    ]
    if wrong:
        raise DseError(f"the frame is no {schema.name}: {'; '.join(wrong)}")
    return frame
