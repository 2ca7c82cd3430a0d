"""Multi-head, grouped-query and multi-query attention (GQA, arXiv:2305.13245)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.hardware.dtype import DType
from dse.model.attention._base import Attention
from dse.model.ops import ComputeOp, DecodeAttention, Elementwise, Gemm, Num, PrefillAttention
from dse.model.precision import Precision
from dse.model.shard import Shard, kv_heads_per_rank
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class GQA(Attention):
    """`n_heads` query heads share `n_kv_heads` KV heads; `d_v` differs from `d_head` in few models.

    `output_gate` adds a second query-sized projection (Qwen3-Next), `qk_norm` a norm per head,
    `bias` a bias on Q, K and V.
    """

    cites: ClassVar[str] = "arXiv:2305.13245"

    n_heads: int
    n_kv_heads: int
    d_head: int
    d_v: int | None = None
    bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    output_gate: bool = False
    sinks: bool = False
    keys_are_values: bool = False
    kind: Literal["gqa"] = "gqa"

    @property
    def d_value(self) -> int:
        """Elements of one value head."""
        return self.d_head if self.d_v is None else self.d_v

    def n_query_heads(self) -> int:
        return self.n_heads

    def n_key_value_heads(self) -> int | None:
        return self.n_kv_heads

    def _heads(self, shard: Shard) -> tuple[float, int]:
        return self.n_heads / shard.tp, kv_heads_per_rank(self.n_kv_heads, shard.tp)

    def _qkv_width(self, shard: Shard) -> float:
        heads, kv_heads = self._heads(shard)
        queries = heads * self.d_head * (2 if self.output_gate else 1)
        values = 0 if self.keys_are_values else self.d_value
        return queries + kv_heads * (self.d_head + values)

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        heads, _ = self._heads(shard)
        width = self._qkv_width(shard)
        small = (width if self.bias else 0.0) + (d_model if self.output_bias else 0.0)
        small += 2 * self.d_head if self.qk_norm else 0.0
        small += heads if self.sinks else 0.0
        return (
            Tensor("qkv_proj", "attention", d_model * width),
            Tensor("o_proj", "attention", heads * self.d_value * d_model),
            Tensor("attention_small", "norm", small),
        )

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        kv_heads = kv_heads_per_rank(self.n_kv_heads, shard.tp)
        return kv_heads * (self.d_head + self.d_value) * kv.bytes_per_element / shard.cp

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        return self.kv_bytes_per_token(shard, kv) * context_tokens

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        heads, kv_heads = self._heads(shard)
        dtypes = {"weights": p.of("attention"), "activations": p.activation_of("attention")}
        rope_bytes = 2 * p.other.bytes_per_element * (heads + kv_heads) * self.d_head
        written = kv_heads * (self.d_head + self.d_value) * p.kv.bytes_per_element
        return [
            Gemm(m=m, n=self._qkv_width(shard), k=d_model, **dtypes),
            Elementwise(name="rope", n_bytes=m * rope_bytes),
            Elementwise(name="kv_write", n_bytes=m * written),
            Gemm(m=m, n=d_model, k=heads * self.d_value, **dtypes),
        ]

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        heads, kv_heads = self._heads(shard)
        return [
            DecodeAttention(
                n_seqs=n_seqs,
                q_tokens=q_tokens,
                context_tokens=context_tokens / shard.cp,
                n_heads=heads * shard.cp,
                n_kv_heads=kv_heads,
                d_qk=self.d_head,
                d_v=self.d_value,
                kv=p.kv,
                windowed=self.window is not None,
            )
        ]

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        return [prefill_attention(self, n_seqs, q_tokens, cached_tokens, shard, p, self.window)]


def prefill_attention(
    part: GQA,
    n_seqs: Num,
    q_tokens: Num,
    cached_tokens: Num,
    shard: Shard,
    p: Precision,
    limit_tokens: int | None,
) -> PrefillAttention:
    """The chunk attention of `part` on a rank; a query sees at most `limit_tokens` keys."""
    return PrefillAttention(
        n_seqs=n_seqs,
        q_tokens=q_tokens,
        cached_tokens=cached_tokens,
        n_heads=part.n_heads / shard.tp,
        n_kv_heads=kv_heads_per_rank(part.n_kv_heads, shard.tp),
        d_qk=part.d_head,
        d_v=part.d_value,
        kv=p.kv,
        window_tokens=limit_tokens,
    )
