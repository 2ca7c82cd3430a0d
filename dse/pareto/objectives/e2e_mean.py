"""Mean time from arrival to last token."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class E2EMean(Objective):
    """Mean time from arrival to last token."""

    column: ClassVar[str] = "e2e_mean_s"
    title: ClassVar[str] = "mean E2E latency"
    unit: ClassVar[str] = "s"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("e2e_mean_s",)

    kind: Literal["e2e_mean"] = "e2e_mean"
