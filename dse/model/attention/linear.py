"""Linear attention and state-space layers: a state of fixed size per request, nothing per token
(Mamba-2, arXiv:2405.21060; gated delta networks, arXiv:2412.06464).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.hardware.dtype import DType
from dse.model.attention._base import Attention
from dse.model.ops import ComputeOp, Gemm, LinearAttention, Num
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Attention):
    """A recurrent mixer of `n_heads` value heads with `d_head × d_state` state each.

    `n_groups × d_state` are the widths of the key and of the query (B and C in Mamba-2), `d_conv`
    the causal convolution over them. `state_dtype` is what the engine keeps the state in.
    `variant` names the projections: `mamba2` (z, x, B, C, dt), `gdn` (q, k, v, z, b, a),
    `kda` (q, k, v, decay of rank `d_gate_rank`, output gate of that rank or full, b).
    """

    cites: ClassVar[str] = "arXiv:2405.21060, arXiv:2412.06464"

    n_heads: int
    d_head: int
    n_groups: int
    d_state: int
    d_conv: int
    variant: Literal["mamba2", "gdn", "kda"]
    d_gate_rank: int = 0
    full_rank_gate: bool = False
    state_dtype: DType = DType.FP32
    conv_dtype: DType = DType.BF16
    kind: Literal["linear"] = "linear"

    def n_query_heads(self) -> int:
        return self.n_heads

    @property
    def d_inner(self) -> int:
        """Width of the values."""
        return self.n_heads * self.d_head

    @property
    def d_convolved(self) -> int:
        """Channels that pass the causal convolution."""
        return self.d_inner + 2 * self.n_groups * self.d_state

    def _in_width(self) -> float:
        if self.variant == "kda":
            return self.d_convolved + self.n_heads + (self.d_inner if self.full_rank_gate else 0)
        decays = self.n_heads if self.variant == "mamba2" else 2 * self.n_heads
        return self.d_convolved + self.d_inner + decays

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        tp = shard.tp
        low_rank = 0.0
        if self.variant == "kda":
            decay = d_model * self.d_gate_rank + self.d_gate_rank * self.n_groups * self.d_state
            gate = d_model * self.d_gate_rank + self.d_gate_rank * self.d_inner
            low_rank = decay + (0 if self.full_rank_gate else gate)
        small = self.d_convolved * self.d_conv + 3 * self.n_heads + self.d_inner
        return (
            Tensor("in_proj", "state", d_model * self._in_width() / tp),
            Tensor("gate_low_rank", "state", low_rank / tp),
            Tensor("out_proj", "state", self.d_inner * d_model / tp),
            Tensor("state_small", "norm", small / tp),
        )

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        return 0.0

    def state_bytes(self, shard: Shard, kv: DType) -> float:
        recurrent = self.d_inner * self.d_state * self.state_dtype.bytes_per_element
        window = self.d_convolved * (self.d_conv - 1) * self.conv_dtype.bytes_per_element
        return (recurrent + window) / shard.tp

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        return self.state_bytes(shard, kv) + 0.0 * context_tokens

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        dtypes = {"weights": p.of("state"), "activations": p.activation_of("state")}
        width = self._in_width() / shard.tp
        return [
            Gemm(m=m, n=width, k=d_model, **dtypes),
            Gemm(m=m, n=d_model, k=self.d_inner / shard.tp, **dtypes),
        ]

    def _mix(self, n_seqs: Num, tokens: Num, shard: Shard, p: Precision) -> list[ComputeOp]:
        moved = 2 * self.d_convolved + 2 * self.d_inner
        return [
            LinearAttention(
                n_seqs=n_seqs,
                tokens=tokens,
                state_bytes=self.state_bytes(shard, p.kv),
                flop_per_token=6.0 * self.d_inner * self.d_state / shard.tp,
                activation_bytes_per_token=moved * p.other.bytes_per_element / shard.tp,
            )
        ]

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        return self._mix(n_seqs, n_seqs * q_tokens + 0.0 * context_tokens, shard, p)

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        return self._mix(n_seqs, n_seqs * q_tokens + 0.0 * cached_tokens, shard, p)
