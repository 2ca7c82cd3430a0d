"""Interactivity: the tokens per second that one user sees."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import polars as pl

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class TokPerSPerUser(Objective):
    """1 / mean TPOT."""

    column: ClassVar[str] = "tok_per_s_per_user"
    title: ClassVar[str] = "interactivity"
    unit: ClassVar[str] = "tok/s/user"
    direction: ClassVar[Direction] = "max"
    needs: ClassVar[tuple[str, ...]] = ("tpot_mean_s",)

    kind: Literal["tok_per_s_per_user"] = "tok_per_s_per_user"

    def view(self) -> pl.Expr:
        """1 / mean TPOT in tok/s."""
        return (1.0 / pl.col("tpot_mean_s")).alias(self.column)
