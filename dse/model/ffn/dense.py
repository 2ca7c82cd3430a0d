"""A dense feed-forward block, gated (SwiGLU, arXiv:2002.05202) or not."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ffn._base import FFN
from dse.model.ops import ComputeOp, Elementwise, Gemm, Num
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(FFN):
    """`d_ff` wide; `gated` has three projections, else two."""

    cites: ClassVar[str] = "arXiv:2002.05202"

    d_ff: int
    gated: bool = True
    bias: bool = False
    kind: Literal["dense"] = "dense"

    def widths(self) -> dict[str, int]:
        return {"dense": self.d_ff}

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        width = self.d_ff / shard.dense_tp
        ups = 2 if self.gated else 1
        bias = ups * width + d_model if self.bias else 0.0
        return (
            Tensor("up_proj", "dense_ffn", ups * d_model * width),
            Tensor("down_proj", "dense_ffn", width * d_model),
            Tensor("ffn_bias", "norm", bias),
        )

    def local_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        m, width, ups = m / shard.dense_split, self.d_ff / shard.dense_tp, 2 if self.gated else 1
        dtypes = {"weights": p.of("dense_ffn"), "activations": p.activation_of("dense_ffn")}
        return [
            Gemm(m=m, n=ups * width, k=d_model, **dtypes),
            Elementwise(name="activation", n_bytes=m * (ups + 1) * width * 2),
            Gemm(m=m, n=d_model, k=width, **dtypes),
        ]
