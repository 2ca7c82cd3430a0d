"""What an output token takes in energy when every board draws its rated power."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class JoulesPerToken(Objective):
    """Rated board power (TDP) ÷ output tokens per second and GPU.

    An upper estimate: a board bound by HBM draws less than its TDP. Host, network and cooling are
    not in it.
    """

    column: ClassVar[str] = "joules_per_token"
    title: ClassVar[str] = "energy per output token"
    unit: ClassVar[str] = "J/tok"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("tdp_watts", "output_tok_per_s_per_gpu")

    kind: Literal["joules_per_token"] = "joules_per_token"

    def view(self) -> pl.Expr:
        """Joules per output token."""
        return (pl.col("tdp_watts") / pl.col("output_tok_per_s_per_gpu")).alias(self.column)
