"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): one latent per token, whole on
every TP rank.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.hardware.dtype import DType
from dse.model.attention._base import Attention
from dse.model.ops import ComputeOp, Elementwise, Gemm, MLADecode, MLAPrefill, Num
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MLA(Attention):
    """`kv_lora_rank + d_rope` elements per token; `q_lora_rank` None means an unfactored query.

    The down-projections `q_a` and `kv_a` are replicated on every TP rank, the per-head ones cut.
    """

    cites: ClassVar[str] = "arXiv:2405.04434"

    n_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    d_nope: int
    d_rope: int
    d_v: int
    output_gate: bool = False
    kind: Literal["mla"] = "mla"

    def n_query_heads(self) -> int:
        return self.n_heads

    @property
    def d_latent(self) -> int:
        """Elements stored per token."""
        return self.kv_lora_rank + self.d_rope

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        heads = self.n_heads / shard.tp
        d_query = heads * (self.d_nope + self.d_rope)
        rank = self.q_lora_rank
        query = (
            (Tensor("q_proj", "attention", d_model * d_query),)
            if rank is None
            else (
                Tensor("q_a_proj", "attention", d_model * rank),
                Tensor("q_b_proj", "attention", rank * d_query),
            )
        )
        gate = (Tensor("gate_proj", "attention", d_model * heads * self.d_v),)
        return (
            *query,
            Tensor("kv_a_proj", "attention", d_model * self.d_latent),
            Tensor("kv_b_proj", "attention", self.kv_lora_rank * heads * (self.d_nope + self.d_v)),
            Tensor("o_proj", "attention", heads * self.d_v * d_model),
            *(gate if self.output_gate else ()),
            Tensor("attention_small", "norm", (rank or 0) + self.kv_lora_rank),
        )

    def kv_bytes_per_token(self, shard: Shard, kv: DType) -> float:
        return self.d_latent * kv.bytes_per_element / shard.cp

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        return self.kv_bytes_per_token(shard, kv) * context_tokens

    def linear_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        heads = self.n_heads / shard.tp
        dtypes = {"weights": p.of("attention"), "activations": p.activation_of("attention")}
        d_query = heads * (self.d_nope + self.d_rope)
        down = self.d_latent + (self.q_lora_rank or 0)
        ops: list[ComputeOp] = [Gemm(m=m, n=down, k=d_model, **dtypes)]
        k = d_model if self.q_lora_rank is None else self.q_lora_rank
        ops.append(Gemm(m=m, n=d_query, k=k, **dtypes))
        # kv_b (or its absorbed halves) is applied to every new token, as W_UK and W_UV.
        ops.append(Gemm(m=m, n=heads * (self.d_nope + self.d_v), k=self.kv_lora_rank, **dtypes))
        ops.append(Elementwise(name="rope", n_bytes=m * 2 * 2 * (heads + 1) * self.d_rope))
        ops.append(Elementwise(name="kv_write", n_bytes=m * self.d_latent * p.kv.bytes_per_element))
        if self.output_gate:
            ops.append(Gemm(m=m, n=heads * self.d_v, k=d_model, **dtypes))
        ops.append(Gemm(m=m, n=d_model, k=heads * self.d_v, **dtypes))
        return ops

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        return [
            MLADecode(
                n_seqs=n_seqs,
                q_tokens=q_tokens,
                context_tokens=context_tokens / shard.cp,
                n_heads=self.n_heads / shard.tp * shard.cp,
                d_latent=self.kv_lora_rank,
                d_rope=self.d_rope,
                bytes_per_token=self.kv_bytes_per_token(shard, p.kv) * shard.cp,
                kv=p.kv,
            )
        ]

    def prefill_ops(
        self, n_seqs: Num, q_tokens: Num, cached_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        heads = self.n_heads / shard.tp
        return [
            # Cached latents are expanded to per-head keys and values again in each chunk.
            Gemm(
                m=n_seqs * cached_tokens,
                n=heads * (self.d_nope + self.d_v),
                k=self.kv_lora_rank,
                weights=p.of("attention"),
                activations=p.activation_of("attention"),
            ),
            MLAPrefill(
                n_seqs=n_seqs,
                q_tokens=q_tokens,
                cached_tokens=cached_tokens,
                n_heads=heads,
                d_qk=self.d_nope + self.d_rope,
                d_v=self.d_v,
                kv=p.kv,
                selected_tokens=self.selected,
            ),
        ]

    @property
    def selected(self) -> int | None:
        """Keys that a query attends to at most; None for all."""
        return None
