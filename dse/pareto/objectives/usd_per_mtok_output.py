"""What a million output tokens cost at the price of a GPU hour."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class USDPerMtokOutput(Objective):
    """Price per GPU hour ÷ output tokens per GPU hour × 10⁶; every GPU of every pool is paid."""

    column: ClassVar[str] = "usd_per_mtok_output"
    title: ClassVar[str] = "cost per million output tokens"
    unit: ClassVar[str] = "USD/Mtok"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("usd_per_gpu_hour", "output_tok_per_s_per_gpu")

    kind: Literal["usd_per_mtok_output"] = "usd_per_mtok_output"

    def view(self) -> pl.Expr:
        """USD per 10⁶ output tokens."""
        tok_per_hour = pl.col("output_tok_per_s_per_gpu") * 3600.0
        return (pl.col("usd_per_gpu_hour") / tok_per_hour * 1e6).alias(self.column)
