"""No feed-forward block: layers that are a mixer alone."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ffn._base import FFN
from dse.model.ops import ComputeOp, Num
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFFN(FFN):
    """Holds nothing, computes nothing (Nemotron-H mixer layers, arXiv:2504.03624)."""

    cites: ClassVar[str] = "arXiv:2504.03624"

    kind: Literal["none"] = "none"

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        return ()

    def local_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        return []
