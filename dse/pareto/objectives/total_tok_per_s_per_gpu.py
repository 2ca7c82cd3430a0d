"""Input and output tokens per second and GPU of all pools (as InferenceX counts)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalTokPerSPerGPU(Objective):
    """Input and output tokens per second and GPU of all pools (as InferenceX counts)."""

    column: ClassVar[str] = "total_tok_per_s_per_gpu"
    title: ClassVar[str] = "tokens per GPU"
    unit: ClassVar[str] = "tok/s/GPU"
    direction: ClassVar[Direction] = "max"
    needs: ClassVar[tuple[str, ...]] = ("total_tok_per_s_per_gpu",)

    kind: Literal["total_tok_per_s_per_gpu"] = "total_tok_per_s_per_gpu"
