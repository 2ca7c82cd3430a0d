"""A resolved point: every name replaced by the record it names. What `simulate` takes."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from dse.base.units import Bytes
from dse.hardware.fabric import Fabric, Link
from dse.hardware.gpu import GPU
from dse.model.ffn import UNIFORM, Routing
from dse.model.model import Model
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.serving.engine import Engine
from dse.serving.exchange import Exchange, exchange_of, shard_of
from dse.serving.layout import Layout
from dse.serving.routers import ROUTERS, RoundRobin, Router

Role = Literal["both", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeDecoding:
    """`n_draft` tokens proposed per step, each accepted with probability `acceptance` given that
    the one before was; `method` mtp (the model's own modules) or draft. A source for the acceptance
    is the user's to state.
    """

    method: Literal["mtp", "draft"]
    n_draft: int
    acceptance: float

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens a step yields: 1 + Σ a^i (Leviathan et al., arXiv:2211.17192)."""
        return 1.0 + sum(self.acceptance**i for i in range(1, self.n_draft + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """`n_replicas` equal replicas of one role."""

    gpu: GPU
    fabric: Fabric
    layout: Layout
    engine: Engine
    role: Role = "both"
    n_replicas: int = 1

    @property
    def n_gpus(self) -> int:
        """GPUs of all replicas."""
        return self.n_replicas * self.layout.n_gpus

    @property
    def exchange(self) -> Exchange:
        """How tokens reach the experts and return."""
        return exchange_of(self.layout, self.engine)

    def shard(self) -> Shard:
        """How one layer is cut among the ranks of a stage under this engine."""
        return shard_of(self.layout, self.engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One model on one pool (aggregated) or two (disaggregated: prefill, then decode).

    `interconnect` joins the pools. `kv_pool_bytes` (per GPU) skips the pool arithmetic. `routing`
    is the declared expert popularity, `router` what spreads requests over ranks and replicas.
    """

    model: Model
    precision: Precision
    pools: tuple[Pool, ...]
    routing: Routing = UNIFORM
    speculative: SpeculativeDecoding | None = None
    interconnect: Link | None = None
    router: Annotated[Router, ROUTERS] = field(default_factory=RoundRobin)
    kv_pool_bytes: Bytes | None = None

    @property
    def n_gpus(self) -> int:
        """GPUs of all pools."""
        return sum(pool.n_gpus for pool in self.pools)

    @property
    def is_disaggregated(self) -> bool:
        """Whether prefill and decode run on pools of their own."""
        return len(self.pools) > 1

    def pool(self, phase: Literal["prefill", "decode"]) -> Pool:
        """The pool that runs `phase`."""
        return next(pool for pool in self.pools if pool.role in ("both", phase))
