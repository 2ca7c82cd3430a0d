"""Block-sparse grouped-query attention: an index key per token picks the blocks that a query reads.

MiniMax-M3, in the line of native sparse attention (arXiv:2502.11089).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.base.units import Tokens
from dse.hardware.dtype import DType
from dse.model.attention import gqa
from dse.model.ops import ComputeOp, Gemm, Indexer, Num, least
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSparse(gqa.GQA):
    """GQA that reads at most `top_k_tokens` per query; all of the context stays stored.

    The indexer scores every token: `n_index_heads` queries of `d_index` against one shared key,
    kept in the format of the KV cache and whole on every TP rank.
    """

    cites: ClassVar[str] = "arXiv:2502.11089"

    n_index_heads: int
    d_index: int
    top_k_tokens: Tokens
    kind: Literal["block_sparse"] = "block_sparse"  # type: ignore[assignment]

    def _index_bytes(self, kv: DType) -> float:
        return self.d_index * kv.bytes_per_element

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        return (
            *gqa.GQA.tensors(self, d_model, shard),
            Tensor("index_q", "attention", d_model * self.n_index_heads * self.d_index),
            Tensor("index_k", "attention", d_model * self.d_index),
        )

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        stored = gqa.GQA.kv_bytes_per_token(self, shard, kv)
        return stored + self._index_bytes(kv) / shard.cp

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        chosen = least(context_tokens, self.top_k_tokens)
        read = gqa.GQA.kv_bytes_per_token(self, shard, kv) * chosen
        return read + self._index_bytes(kv) / shard.cp * context_tokens

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        width = (self.n_index_heads + 1) * self.d_index
        index = Gemm(
            m=m,
            n=width,
            k=d_model,
            weights=p.of("attention"),
            activations=p.activation_of("attention"),
        )
        return [*gqa.GQA.linear_ops(self, m, d_model, shard, p), index]

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        keys = context_tokens / shard.cp
        seen = least(context_tokens, self.top_k_tokens)
        return [
            self._index(n_seqs * q_tokens * keys, n_seqs * keys, p),
            *gqa.GQA.decode_ops(self, n_seqs, q_tokens, seen, shard, p),
        ]

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        pairs = n_seqs * q_tokens * (cached_tokens + q_tokens / 2)
        index = self._index(pairs, n_seqs * (cached_tokens + q_tokens), p)
        chosen = gqa.prefill_attention(
            self, n_seqs, q_tokens, cached_tokens, shard, p, self.top_k_tokens
        )
        return [index, chosen]

    def _index(self, pairs: Num, keys: Num, p: Precision) -> Indexer:
        key_bytes = self._index_bytes(p.kv) * keys
        return Indexer(
            pairs=pairs, n_heads=self.n_index_heads, d_head=self.d_index, key_bytes=key_bytes
        )
