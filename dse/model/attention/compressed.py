"""Compressed attention (DeepSeek-V4): a short window beside a context of compressed entries.

Every `ratio` tokens became one entry, chosen by an indexer or read whole.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.base.units import Tokens
from dse.hardware.dtype import DType
from dse.model.attention._base import Attention
from dse.model.ops import ComputeOp, Elementwise, Gemm, Indexer, MLADecode, Num, least, most
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor

# An FP8 entry keeps its rope half in bf16 and one scale byte per 64 elements, padded to 8.
ROPE_BYTES = 2
FP8_SCALE_BYTES = 8
INDEX_SCALE_BYTES = 4
# The compressor that overlaps its neighbours (the fine one, ratio 4) projects twice as wide.
OVERLAPPED_RATIO = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed(Attention):
    """One shared key-value head of `d_head` (of which `d_rope` rotate), keys being values.

    `ratio` 0 has the window alone. `top_k_tokens` entries are read where there is an indexer
    (`n_index_heads` of `d_index`), all of them otherwise. The output projection has
    `n_output_groups` of rank `o_lora_rank`. Entries are whole on every TP rank.
    """

    cites: ClassVar[str] = "DeepSeek-V4 model card and configuration"

    n_heads: int
    d_head: int
    d_rope: int
    q_lora_rank: int
    o_lora_rank: int
    n_output_groups: int
    window_tokens: Tokens
    ratio: int
    n_index_heads: int = 0
    d_index: int = 0
    top_k_tokens: Tokens = 0
    kind: Literal["compressed"] = "compressed"

    def n_query_heads(self) -> int:
        return self.n_heads

    def _entry_bytes(self, kv: DType) -> float:
        if kv is DType.FP8:
            return self.d_head - self.d_rope + ROPE_BYTES * self.d_rope + FP8_SCALE_BYTES
        return self.d_head * kv.bytes_per_element

    def _index_bytes(self) -> float:
        return self.d_index + INDEX_SCALE_BYTES if self.n_index_heads else 0.0

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        width = self.n_heads * self.d_head / shard.tp
        groups = self.n_output_groups / shard.tp
        return (
            Tensor("q_a_proj", "attention", d_model * self.q_lora_rank),
            Tensor("q_b_proj", "attention", self.q_lora_rank * width),
            Tensor("kv_proj", "attention", d_model * self.d_head),
            # Each group projects its own heads to the rank: heads · d_head · rank in all.
            Tensor("o_a_proj", "attention", width * self.o_lora_rank),
            Tensor("o_b_proj", "attention", groups * self.o_lora_rank * d_model),
            Tensor("compressor", "attention", self._compressor(d_model, self.d_head)),
            *self._index_tensors(d_model),
            Tensor("attention_small", "norm", self.q_lora_rank + self.d_head + self.n_heads),
        )

    def _compressor(self, d_model: int, width: int) -> float:
        """Key and gate projections of the compressor."""
        if self.ratio == 0:
            return 0.0
        return d_model * 2 * width * (2 if self.ratio == OVERLAPPED_RATIO else 1)

    def _index_tensors(self, d_model: int) -> tuple[Tensor, ...]:
        if not self.n_index_heads:
            return ()
        return (
            Tensor("index_q", "attention", self.q_lora_rank * self.n_index_heads * self.d_index),
            Tensor("index_k", "attention", self._compressor(d_model, self.d_index)),
            Tensor("index_weights", "router", d_model * self.n_index_heads),
        )

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        if self.ratio == 0:
            return 0.0
        return (self._entry_bytes(kv) + self._index_bytes()) / self.ratio / shard.cp

    def state_bytes(self, shard: Shard, kv: DType) -> float:
        return self.window_tokens * self._entry_bytes(kv)

    def _entries(self, context_tokens: Num) -> Num:
        """Compressed entries that a query reads."""
        if self.ratio == 0:
            return 0.0 * context_tokens
        entries = context_tokens / self.ratio
        return least(entries, self.top_k_tokens) if self.n_index_heads else entries

    def _mean_entries(self, q_tokens: Num, cached_tokens: Num) -> Num:
        """Compressed entries that a query of a chunk reads on average."""
        if self.ratio == 0:
            return 0.0 * q_tokens
        if not self.n_index_heads:
            return (cached_tokens + q_tokens / 2) / self.ratio
        limit = self.top_k_tokens * self.ratio
        return _mean_seen(q_tokens, cached_tokens, limit) / self.ratio

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        entry = self._entry_bytes(kv)
        near = entry * least(context_tokens, self.window_tokens)
        far = entry * self._entries(context_tokens)
        index = self._index_bytes() * context_tokens / max(self.ratio, 1)
        return near + (far + index) / shard.cp

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        dtypes = {"weights": p.of("attention"), "activations": p.activation_of("attention")}
        width = self.n_heads * self.d_head / shard.tp
        groups = self.n_output_groups / shard.tp
        extra = (self._compressor(d_model, self.d_head + self.d_index)) / d_model
        down = self.q_lora_rank + self.d_head + extra
        index = self.n_index_heads * self.d_index
        return [
            Gemm(m=m, n=down, k=d_model, **dtypes),
            Gemm(m=m, n=width + index, k=self.q_lora_rank, **dtypes),
            Elementwise(
                name="rope", n_bytes=m * 2 * 2 * (self.n_heads / shard.tp + 1) * self.d_rope
            ),
            Elementwise(name="kv_write", n_bytes=m * self._entry_bytes(p.kv)),
            Gemm(m=m * groups, n=self.o_lora_rank, k=width / groups, **dtypes),
            Gemm(m=m, n=d_model, k=groups * self.o_lora_rank, **dtypes),
        ]

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        seen = least(context_tokens, self.window_tokens) + self._entries(context_tokens) / shard.cp
        ops = self._scoring(n_seqs, q_tokens, context_tokens / shard.cp)
        heads = self.n_heads / shard.tp * shard.cp
        return [*ops, self._attend(n_seqs, q_tokens, seen, heads, p)]

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        near = _mean_seen(q_tokens, cached_tokens, self.window_tokens)
        seen = near + self._mean_entries(q_tokens, cached_tokens)
        ops = self._scoring(n_seqs, q_tokens, cached_tokens + q_tokens / 2)
        return [*ops, self._attend(n_seqs, q_tokens, seen, self.n_heads / shard.tp, p)]

    def _attend(
        self, n_seqs: Num, q_tokens: Num, seen: Num, n_heads: float, p: Precision
    ) -> MLADecode:
        # Keys are values and rope is inside d_head: a score and a sum of d_head each.
        return MLADecode(
            n_seqs=n_seqs,
            q_tokens=q_tokens,
            context_tokens=seen,
            n_heads=n_heads,
            d_latent=self.d_head,
            d_rope=0,
            bytes_per_token=self._entry_bytes(p.kv),
            kv=p.kv,
        )

    def _scoring(self, n_seqs: Num, q_tokens: Num, context_tokens: Num) -> list[ComputeOp]:
        if not self.n_index_heads:
            return []
        keys = n_seqs * context_tokens / self.ratio
        return [
            Indexer(
                pairs=keys * q_tokens,
                n_heads=self.n_index_heads,
                d_head=self.d_index,
                key_bytes=self._index_bytes() * keys,
            )
        ]


def _mean_seen(q_tokens: Num, cached_tokens: Num, limit_tokens: int) -> Num:
    """Mean of `min(position, limit)` over the positions of a chunk."""

    def area(position: Num) -> Num:
        inside = least(position, limit_tokens)
        return inside * inside / 2 + limit_tokens * (position - inside)

    return (area(cached_tokens + q_tokens) - area(cached_tokens)) / most(q_tokens, 1.0)
