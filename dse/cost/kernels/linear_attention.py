"""Linear attention and state-space mixers: gated delta networks, KDA, Mamba-2."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.cost.kernels._terms import Kernel, Terms, balance, log, log_us
from dse.hardware.gpu import GPU
from dse.model.ops import LinearAttention, Num


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttentionKernel(Kernel):
    """Convolution and recurrence of one layer: the state is read and written once per step."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "n_seqs", "tokens_per_seq", "state", "width", "flop_us", "hbm_us", "balance",
        "moved_per_l2", "states_per_sm",
    )  # fmt: skip
    kind: Literal["linear_attention"] = "linear_attention"

    def variant(self, op: LinearAttention) -> str:
        return "bf16"

    def features(
        self, op: LinearAttention, needs: Terms, moved_bytes: Num, gpu: GPU
    ) -> tuple[Num, ...]:
        seqs = np.maximum(op.n_seqs, 1e-3)
        return (
            log(seqs), log(op.tokens / seqs), log(op.state_bytes),
            log(op.activation_bytes_per_token), log_us(needs.flop_s), log_us(needs.hbm_s),
            balance(needs), log(moved_bytes / gpu.l2_bytes), log(seqs / gpu.sm_count),
        )  # fmt: skip
