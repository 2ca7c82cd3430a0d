"""DeepSeek sparse attention: an indexer picks the latents that MLA attends to (DeepSeek-V3.2)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.base.units import Tokens
from dse.hardware.dtype import DType
from dse.model.attention import mla
from dse.model.ops import ComputeOp, Gemm, Indexer, MLADecode, Num, least
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor

# One fp8 key of 128 plus an fp32 scale per token (DeepSeek-V3.2 indexer cache).
INDEX_SCALE_BYTES = 4
# FlashMLA's FP8 sparse layout: 512 fp8 latents, 4 fp32 scales, 64 bf16 rope elements.
FP8_SCALE_BYTES = 16
ROPE_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DSA(mla.MLA):
    """MLA that reads at most `top_k_tokens` latents per query; the indexer still scores all of the
    context and keeps `d_index` bytes and a scale per token.

    `indexer` is False for layers that reuse another layer's choice.
    """

    cites: ClassVar[str] = "DeepSeek-V3.2 technical report, section 2"

    n_index_heads: int
    d_index: int
    top_k_tokens: Tokens
    indexer: bool = True
    kind: Literal["sparse"] = "sparse"  # type: ignore[assignment]

    @property
    def selected(self) -> int | None:
        return self.top_k_tokens

    def _latent_bytes(self, kv: DType) -> float:
        if kv is DType.FP8:
            return self.kv_lora_rank + FP8_SCALE_BYTES + ROPE_BYTES * self.d_rope
        return self.d_latent * kv.bytes_per_element

    def _index_bytes(self) -> float:
        return self.d_index + INDEX_SCALE_BYTES if self.indexer else 0.0

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        base = mla.MLA.tensors(self, d_model, shard)
        if not self.indexer:
            return base
        d_query = self.n_index_heads * self.d_index
        return (
            *base,
            Tensor("index_q", "attention", (self.q_lora_rank or d_model) * d_query),
            Tensor("index_k", "attention", d_model * self.d_index),
            Tensor("index_weights", "router", d_model * self.n_index_heads),
            Tensor("index_norm", "norm", 2 * self.d_index),
        )

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        return (self._latent_bytes(kv) + self._index_bytes()) / shard.cp

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        latents = self._latent_bytes(kv) * least(context_tokens, self.top_k_tokens)
        return (latents + self._index_bytes() * context_tokens) / shard.cp

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        ops = mla.MLA.linear_ops(self, m, d_model, shard, p)
        if not self.indexer:
            return ops
        dtypes = {"weights": p.of("attention"), "activations": p.activation_of("attention")}
        d_query = self.n_index_heads * self.d_index
        ops.append(Gemm(m=m, n=d_query, k=self.q_lora_rank or d_model, **dtypes))
        ops.append(Gemm(m=m, n=self.d_index + self.n_index_heads, k=d_model, **dtypes))
        return ops

    def _index_op(self, pairs: Num, keys: Num) -> list[ComputeOp]:
        if not self.indexer:
            return []
        key_bytes = self._index_bytes() * keys
        heads = self.n_index_heads
        return [Indexer(pairs=pairs, n_heads=heads, d_head=self.d_index, key_bytes=key_bytes)]

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        pairs = n_seqs * q_tokens * context_tokens / shard.cp
        return [
            *self._index_op(pairs, n_seqs * context_tokens / shard.cp),
            MLADecode(
                n_seqs=n_seqs,
                q_tokens=q_tokens,
                context_tokens=least(context_tokens, self.top_k_tokens) / shard.cp,
                n_heads=self.n_heads / shard.tp * shard.cp,
                d_latent=self.kv_lora_rank,
                d_rope=self.d_rope,
                bytes_per_token=self._latent_bytes(p.kv),
                kv=p.kv,
            ),
        ]

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        pairs = n_seqs * q_tokens * (cached_tokens + q_tokens / 2)
        keys = n_seqs * (cached_tokens + q_tokens)
        base = mla.MLA.prefill_ops(self, n_seqs, q_tokens, cached_tokens, shard, p)
        return [*self._index_op(pairs, keys), *base]
