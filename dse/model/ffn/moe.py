"""Mixture of experts: routed experts, and shared ones that every token uses (arXiv:2401.06066)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.base.errors import UserError
from dse.model.ffn._base import FFN
from dse.model.ffn._routing import UNIFORM, Routing
from dse.model.ops import ComputeOp, Elementwise, Gemm, GroupedGemm, Num, least
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class MoE(FFN):
    """`n_experts` routed experts of width `d_expert`, `top_k` of them per token, plus
    `n_shared × d_shared` shared width. `d_expert_model` is the experts' input width where it is not
    d_model (latent experts); `shared_gate` adds one gate vector per layer.
    A token's experts come from at most `top_groups` of `n_groups` equal ones (arXiv:2412.19437).
    """

    cites: ClassVar[str] = "arXiv:2401.06066"
    is_moe: ClassVar[bool] = True

    n_experts: int
    top_k: int
    d_expert: int
    n_shared: int = 0
    d_shared: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    gated: bool = True
    d_expert_model: int | None = None
    n_groups: int = 1
    top_groups: int = 1
    kind: Literal["moe"] = "moe"

    def __post_init__(self) -> None:
        """Refuse groups from which no router could choose."""
        if fault := group_fault(self.n_experts, self.top_k, self.n_groups, self.top_groups):
            raise UserError(*fault)

    def widths(self) -> dict[str, int]:
        found = {"expert": self.d_expert, "experts": self.n_experts}
        return found | ({"shared": self.n_shared * self.d_shared} if self.n_shared else {})

    def experts_per_rank(self, shard: Shard) -> float:
        """Routed experts that one rank holds, redundant copies included."""
        return (self.n_experts + shard.redundant_experts) / shard.ep

    def _expert_elements(self, d_model: int, shard: Shard) -> float:
        ups, width = 2 if self.gated else 1, self.d_expert / shard.moe_tp
        d_in = self.d_expert_model or d_model
        return (ups + 1) * d_in * width + ((ups * width + d_in) if self.expert_bias else 0)

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        ups = 2 if self.gated else 1
        shared = (ups + 1) * d_model * self.n_shared * self.d_shared / shard.shared_tp
        router = self.n_experts * (d_model + (1 if self.router_bias else 0))
        router += d_model if self.shared_gate else 0
        latent = 0 if self.d_expert_model is None else 2 * d_model * self.d_expert_model
        per_rank = self.experts_per_rank(shard)
        return (
            Tensor("experts", "expert", self._expert_elements(d_model, shard), per_rank),
            Tensor("shared_experts", "shared_expert", shared),
            Tensor("latent_proj", "shared_expert", latent),
            Tensor("router", "router", router),
        )

    def local_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        if shard.moe_over_group:
            return []
        return self._token_ops(m / shard.moe_split, d_model, shard, p)

    def _token_ops(self, m: Num, d_model: int, shard: Shard, p: Precision) -> list[ComputeOp]:
        """Router and shared expert."""
        routed = Gemm(m=m, n=self.n_experts, k=d_model, weights=p.of("router"), activations=p.other)
        topk = Elementwise(name="topk", n_bytes=m * (4 * self.n_experts + 8 * self.top_k))
        if not self.n_shared:
            return [routed, topk]
        ups, width = 2 if self.gated else 1, self.n_shared * self.d_shared / shard.shared_tp
        dtypes = {
            "weights": p.of("shared_expert"),
            "activations": p.activation_of("shared_expert"),
        }
        return [
            routed,
            topk,
            Gemm(m=m, n=ups * width, k=d_model, **dtypes),
            Elementwise(name="activation", n_bytes=m * (ups + 1) * width * 2),
            Gemm(m=m, n=d_model, k=width, **dtypes),
        ]

    def group_ops(
        self, m: Num, d_model: int, shard: Shard, p: Precision, routing: Routing = UNIFORM
    ) -> list[ComputeOp]:
        rank_share = routing.imbalance(m, self.n_experts, self.top_k, shard.ep) / shard.ep
        rows = m * self.top_k * rank_share
        held = self.experts_per_rank(shard)
        touched = least(routing.touched_on_fullest(m, self.n_experts, self.top_k, shard.ep), held)
        return [
            *(self._token_ops(m, d_model, shard, p) if shard.moe_over_group else ()),
            GroupedGemm(
                tokens=m,
                rows=rows,
                touched=touched,
                n_experts=held,
                top_k=self.top_k,
                d_model=self.d_expert_model or d_model,
                d_ff=self.d_expert / shard.moe_tp,
                gated=self.gated,
                weights=p.of("expert"),
                activations=p.activation_of("expert"),
            ),
        ]

    def touched_elements(
        self, m: Num, d_model: int, shard: Shard, routing: Routing = UNIFORM
    ) -> Num:
        mean = routing.touched(m, self.n_experts, self.top_k) / shard.ep
        return mean * self._expert_elements(d_model, shard)


def group_fault(
    n_experts: int, top_k: int, n_groups: int, top_groups: int
) -> tuple[str, str] | None:
    """What is wrong with groups of experts, and what to give; None: a router can choose so."""
    groups = f"{top_groups} of {n_groups} groups"
    if not 1 <= top_groups <= n_groups:
        return f"{groups} of experts", "give 1 ≤ top_groups ≤ n_groups"
    if n_experts % n_groups:
        return f"{n_experts} experts in {n_groups} groups", "give a number that divides the experts"
    if top_k > top_groups * n_experts // n_groups:
        what = f"{top_k} experts per token from {groups} of {n_experts} experts"
        return what, "give more groups, or none at all"
    return None
