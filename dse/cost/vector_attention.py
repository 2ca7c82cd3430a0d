"""Decode attention on vector units, where an engine's grouped kernel does not cover the heads.

Kernels on tensor cores read a key once for all query heads that share it. TensorRT-LLM 0.8 and 0.9
have such a kernel for eight query heads of 128 alone (decoderXQARunner.h, `shouldUse`); their
masked multi-head kernel serves every other shape, one query head at a time. Re-reads of a shared
key come from L2, so the limit is the vector units or HBM, whichever is slower.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.base.digest import digest
from dse.cost.kernels import KernelModel
from dse.cost.work import work
from dse.hardware.gpu import GPU
from dse.model.ops import ComputeOp, DecodeAttention, Num
from dse.serving.engine import VectorAttention

LAUNCH_S = 6e-6  # as the prior of decode attention


@dataclass(frozen=True, kw_only=True)
class WithVectorAttention:
    """`inner`, but for decode attention of the heads that `rule` leaves to vector units."""

    inner: KernelModel
    gpu: GPU
    rule: VectorAttention

    @property
    def in_step(self) -> bool:
        return self.inner.in_step

    @property
    def tier(self) -> str:
        return self.inner.tier

    @property
    def physics_id(self) -> str:
        return digest((self.inner.physics_id, self.rule))

    def seconds(self, op: ComputeOp) -> Num:
        """Seconds of one run of `op`; 0 for an op without work."""
        if not isinstance(op, DecodeAttention) or self._is_grouped(op):
            return self.inner.seconds(op)
        keys = op.n_seqs * op.q_tokens * op.context_tokens * op.n_heads
        clocks = keys * (op.d_qk + op.d_v) / self.rule.elements_per_clock / self.gpu.sm_count
        hbm_s = work(op).hbm_seconds(self.gpu) / self.rule.hbm_share
        busy_s = np.maximum(clocks / self.gpu.boost_hz, hbm_s)
        return np.where(busy_s > 0.0, busy_s + LAUNCH_S, 0.0)[()]

    def roofline_seconds(self, op: ComputeOp) -> Num:
        """Seconds at the GPU's peaks."""
        return self.inner.roofline_seconds(op)

    def interval(self, op: ComputeOp) -> tuple[Num, Num]:
        """That of the kernels that were measured."""
        return self.inner.interval(op)

    def _is_grouped(self, op: DecodeAttention) -> bool:
        group, d_head = float(np.max(op.n_heads / op.n_kv_heads)), float(np.max(op.d_qk))
        return group in self.rule.grouped_heads and d_head in self.rule.grouped_d_heads


def as_engine_runs(kernels: Any, gpu: GPU, rule: VectorAttention | None) -> KernelModel:
    """`kernels` with the engine's own decode attention; peaks stay peaks (they are floors)."""
    if rule is None or kernels.tier == "roofline":
        return kernels  # type: ignore[no-any-return]
    return WithVectorAttention(inner=kernels, gpu=gpu, rule=rule)
