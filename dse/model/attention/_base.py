"""The contract of an attention variant."""

from dataclasses import dataclass
from typing import ClassVar

from dse.hardware.dtype import DType
from dse.model.ops import ComputeOp, Num
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One layer's attention. Everything is per rank of `shard` and for one layer.

    A variant says what it stores (`kv_bytes_per_token`, `state_bytes`, `window`), what a decode
    step reads of it (`read_bytes`), its weight tensors, and the ops of a step in three parts that
    the step model prices apart: `linear_ops` (by tokens), `decode_ops` (by sequences and context)
    and `prefill_ops` (by chunk).
    """

    cites: ClassVar[str] = ""

    @property
    def window(self) -> int | None:
        """Tokens beyond which nothing is read (sliding window); None where all is."""
        return None

    def n_query_heads(self) -> int:
        """Query heads (0 where there are none), for legality."""
        return 0

    def n_key_value_heads(self) -> int | None:
        """KV heads for the divisibility rule; None where it does not apply (MLA, linear)."""
        return None

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        """Weight tensors of one rank."""
        raise NotImplementedError

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        """Bytes stored per token of context on one rank."""
        raise NotImplementedError

    def state_bytes(self, shard: Shard, kv: DType) -> float:
        """Bytes stored per request whatever its context (recurrent state)."""
        return 0.0

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        """HBM bytes that one query step reads of a request with `context_tokens`."""
        raise NotImplementedError

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        """Projections and element-wise work for `m` tokens."""
        raise NotImplementedError

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        """Attention of `n_seqs` decoding sequences with `q_tokens` queries each on a mean context
        of `context_tokens`.
        """
        raise NotImplementedError

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        """Attention of `n_seqs` chunks of `q_tokens` new tokens on `cached_tokens` cached ones."""
        raise NotImplementedError
