"""Kernels as one engine version runs them, where that differs from what was measured.

*Decode attention on vector units.* Kernels on tensor cores read a key once for all query heads that
share it. TensorRT-LLM 0.8 and 0.9 have such a kernel for eight query heads of 128 alone
(decoderXQARunner.h, `shouldUse`); their masked multi-head kernel serves every other shape, one
query head at a time. Re-reads of a shared key come from L2, so the limit is the vector units or
HBM, whichever is slower.

*Scales on the fly.* An FP8 checkpoint without scales of its activations has them computed before
each matrix product: a pass over the input that takes its launch and its bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.base.digest import digest
from dse.cost.kernels import KernelModel
from dse.cost.work import work
from dse.hardware.dtype import DType
from dse.hardware.gpu import GPU
from dse.model.ops import ComputeOp, DecodeAttention, Gemm, Num
from dse.serving.engine import Engine, VectorAttention

LAUNCH_S = 6e-6  # as the prior of decode attention
STREAMED = 0.85  # of the HBM bandwidth, as the prior of element-wise kernels


@dataclass(frozen=True, kw_only=True)
class EngineKernels:
    """`inner`, but for decode attention of the heads that `rule` leaves to vector units, and with a
    pass of `scale_pass_s` before each matrix product in FP8 with one scale a tensor.
    """

    inner: KernelModel
    gpu: GPU
    rule: VectorAttention | None
    scale_pass_s: float

    @property
    def in_step(self) -> bool:
        return self.inner.in_step

    @property
    def tier(self) -> str:
        return self.inner.tier

    @property
    def physics_id(self) -> str:
        return digest((self.inner.physics_id, self.rule, self.scale_pass_s))

    def seconds(self, op: ComputeOp) -> Num:
        """Seconds of one run of `op`; 0 for an op without work."""
        if isinstance(op, Gemm) and op.weights is DType.FP8 and self.scale_pass_s:
            return self.inner.seconds(op) + self._scaled(op)
        rule = self.rule
        if rule is None or not isinstance(op, DecodeAttention) or _is_grouped(op, rule):
            return self.inner.seconds(op)
        keys = op.n_seqs * op.q_tokens * op.context_tokens * op.n_heads
        clocks = keys * (op.d_qk + op.d_v) / rule.elements_per_clock / self.gpu.sm_count
        hbm_s = work(op).hbm_seconds(self.gpu) / rule.hbm_share
        busy_s = np.maximum(clocks / self.gpu.boost_hz, hbm_s)
        return np.where(busy_s > 0.0, busy_s + LAUNCH_S, 0.0)[()]

    def roofline_seconds(self, op: ComputeOp) -> Num:
        """Seconds at the GPU's peaks."""
        return self.inner.roofline_seconds(op)

    def interval(self, op: ComputeOp) -> tuple[Num, Num]:
        """That of the kernels that were measured."""
        return self.inner.interval(op)

    def _scaled(self, op: Gemm) -> Num:
        n_bytes = np.multiply(op.m, op.k) * DType.BF16.bytes_per_element
        seconds = self.scale_pass_s + n_bytes / (STREAMED * self.gpu.hbm_bytes_per_s)
        return np.where(n_bytes > 0.0, seconds, 0.0)[()]


def _is_grouped(op: DecodeAttention, rule: VectorAttention) -> bool:
    group, d_head = float(np.max(op.n_heads / op.n_kv_heads)), float(np.max(op.d_qk))
    return group in rule.grouped_heads and d_head in rule.grouped_d_heads


def as_engine_runs(kernels: Any, gpu: GPU, engine: Engine) -> KernelModel:
    """`kernels` as `engine` runs them; peaks stay peaks (they are floors)."""
    rule, scale_pass_s = engine.vector_attention, engine.scale_pass_s
    if kernels.tier == "roofline" or (rule is None and not scale_pass_s):
        return kernels  # type: ignore[no-any-return]
    return EngineKernels(inner=kernels, gpu=gpu, rule=rule, scale_pass_s=scale_pass_s)
