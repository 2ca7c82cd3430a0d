"""99th percentile of the time from arrival to first output token."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class TTFTP99(Objective):
    """99th percentile of the time from arrival to first output token."""

    column: ClassVar[str] = "ttft_p99_s"
    title: ClassVar[str] = "p99 TTFT"
    unit: ClassVar[str] = "s"
    direction: ClassVar[Direction] = "min"
    needs: ClassVar[tuple[str, ...]] = ("ttft_p99_s",)
    is_percentile: ClassVar[bool] = True

    kind: Literal["ttft_p99"] = "ttft_p99"
