"""The contract of a feed-forward variant."""

from dataclasses import dataclass
from typing import ClassVar

from dse.model.ffn._routing import UNIFORM, Routing
from dse.model.ops import ComputeOp, Num
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FFN:
    """One layer's feed-forward block. Everything is per rank of `shard` and for one layer."""

    cites: ClassVar[str] = ""
    is_moe: ClassVar[bool] = False

    def widths(self) -> dict[str, int]:
        """Widths that a degree must divide: `dense` by tp, `expert` by moe_tp, `experts` by ep."""
        return {}

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        """Weight tensors of one rank."""
        raise NotImplementedError

    def local_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        """Work on the `m` tokens of this rank that no other rank's tokens change."""
        raise NotImplementedError

    def group_ops(
        self, m: Num, d_model: int, shard: Shard, p: Precision, routing: Routing = UNIFORM
    ) -> list[ComputeOp]:
        """Work of this rank on the `m` tokens of its whole expert group (all DP ranks)."""
        return []

    def touched_elements(
        self, m: Num, d_model: int, shard: Shard, routing: Routing = UNIFORM
    ) -> Num:
        """Weight elements of routed experts that `m` tokens of the group touch on the mean rank."""
        return 0.0
