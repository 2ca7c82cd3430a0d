"""Mean over requests of (E2E − TTFT) / (OSL − 1)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class TPOTMean(Objective):
    """Mean over requests of (E2E − TTFT) / (OSL − 1)."""

    column: ClassVar[str] = "tpot_mean_s"
    title: ClassVar[str] = "mean TPOT"
    unit: ClassVar[str] = "s"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("tpot_mean_s",)

    kind: Literal["tpot_mean"] = "tpot_mean"
