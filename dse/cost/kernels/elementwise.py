"""Kernels bound by bandwidth: norm, RoPE, activation, KV write, quantise, embedding, sampling."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.cost.kernels._terms import Kernel, Terms, log, log_us
from dse.cost.work import Work
from dse.hardware.gpu import GPU
from dse.model.ops import Elementwise, Num

# Bandwidth of the L2 over that of the HBM: 5.5-7 TB/s read against 3.35 on an H100
# (Chips and Cheese, "Nvidia's H100: Funny L2, and Tons of Bandwidth", 2023).
L2_SPEEDUP = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementwiseKernel(Kernel):
    """Bytes that fit the L2 stay there between neighbouring kernels: only the rest is the HBM's."""

    feature_names: ClassVar[tuple[str, ...]] = ("soft_us", "moved_per_l2")
    kind: Literal["elementwise"] = "elementwise"

    def variant(self, op: Elementwise) -> str:
        return "bf16"

    def soft_s(self, done: Work, gpu: GPU) -> Num:
        moved = done.hbm_bytes + done.activation_bytes
        return moved / (L2_SPEEDUP * gpu.hbm_bytes_per_s)

    def features(
        self, op: Elementwise, needs: Terms, moved_bytes: Num, gpu: GPU
    ) -> tuple[Num, ...]:
        return (log_us(needs.soft_s), log(moved_bytes / gpu.l2_bytes))
