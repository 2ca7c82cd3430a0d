"""99th percentile over requests of (E2E − TTFT) / (OSL − 1)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class TPOTP99(Objective):
    """99th percentile over requests of (E2E − TTFT) / (OSL − 1)."""

    column: ClassVar[str] = "tpot_p99_s"
    title: ClassVar[str] = "p99 TPOT"
    unit: ClassVar[str] = "s"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("tpot_p99_s",)
    is_percentile: ClassVar[bool] = True

    kind: Literal["tpot_p99"] = "tpot_p99"
