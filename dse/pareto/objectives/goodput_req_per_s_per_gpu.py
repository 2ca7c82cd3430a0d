"""Goodput: the rate of requests that keep the SLO."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputReqPerSPerGPU(Objective):
    """Requests per second and GPU that meet every bound of the SLO at once (DistServe)."""

    cites: ClassVar[str] = "arXiv:2401.09670"

    column: ClassVar[str] = "goodput_req_per_s_per_gpu"
    title: ClassVar[str] = "goodput per GPU"
    unit: ClassVar[str] = "req/s/GPU"
    direction: ClassVar[Direction] = "max"
    needs: ClassVar[tuple[str, ...]] = ("goodput_req_per_s_per_gpu",)

    kind: Literal["goodput_req_per_s_per_gpu"] = "goodput_req_per_s_per_gpu"
