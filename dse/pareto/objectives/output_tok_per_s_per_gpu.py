"""Output tokens per second and GPU of all pools."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.pareto.objectives._base import Direction, Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTokPerSPerGPU(Objective):
    """Output tokens per second and GPU of all pools."""

    column: ClassVar[str] = "output_tok_per_s_per_gpu"
    title: ClassVar[str] = "output tokens per GPU"
    unit: ClassVar[str] = "tok/s/GPU"
    direction: ClassVar[Direction] = "max"
    needs: ClassVar[tuple[str, ...]] = ("output_tok_per_s_per_gpu",)

    kind: Literal["output_tok_per_s_per_gpu"] = "output_tok_per_s_per_gpu"
