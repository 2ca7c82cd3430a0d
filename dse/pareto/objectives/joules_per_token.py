"""What an output token takes in energy."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class JoulesPerToken(Objective):
    """Energy of the boards per output token, as simulated: idle power, and the rest up to TDP by
    the larger of MFU and MBU. Host, network and cooling are not in it.
    """

    column: ClassVar[str] = "joules_per_token"
    title: ClassVar[str] = "energy per output token"
    unit: ClassVar[str] = "J/tok"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("joules_per_output_token",)

    kind: Literal["joules_per_token"] = "joules_per_token"

    def view(self) -> pl.Expr:
        """Joules per output token."""
        return pl.col("joules_per_output_token").alias(self.column)
