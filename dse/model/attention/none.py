"""No attention: layers that are a feed-forward block alone."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.hardware.dtype import DType
from dse.model.attention._base import Attention
from dse.model.ops import ComputeOp, Num
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAttention(Attention):
    """Keeps nothing, computes nothing (Nemotron-H MLP layers, arXiv:2504.03624)."""

    cites: ClassVar[str] = "arXiv:2504.03624"

    kind: Literal["none"] = "none"

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        return ()

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        return 0.0

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        return 0.0 * context_tokens

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        return []

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        return []

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        return []
