"""The contract of an objective."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

Direction = Literal["min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A number by which points are compared: a view of metrics, never stored with them.

    `view` is monotone in each metric, so that of a bound it is a bound: better metrics never give a
    worse objective. `needs` are the metrics (or price and power columns) that it reads.
    `is_percentile` marks latency percentiles, whose only sound bound is a single request's floor.
    """

    column: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str]
    direction: ClassVar[Direction]
    needs: ClassVar[tuple[str, ...]]
    is_percentile: ClassVar[bool] = False
    cites: ClassVar[str] = ""

    def view(self) -> pl.Expr:
        """The objective's value, in `unit`, named `column`."""
        return pl.col(self.needs[0]).alias(self.column)
