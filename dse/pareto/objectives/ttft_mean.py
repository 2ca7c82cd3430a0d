"""Mean time from arrival to first output token, queueing included."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class TTFTMean(Objective):
    """Mean time from arrival to first output token, queueing included."""

    column: ClassVar[str] = "ttft_mean_s"
    title: ClassVar[str] = "mean TTFT"
    unit: ClassVar[str] = "s"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("ttft_mean_s",)

    kind: Literal["ttft_mean"] = "ttft_mean"
