"""A deployment compiled for simulation: tables, limits and memory of each pool."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dse.base.errors import IllegalError
from dse.base.units import Bytes, show
from dse.cost.memo import Memo
from dse.cost.memory import KVCurve, rank_memory
from dse.cost.step import StepCost, compile_step, decided_by
from dse.serving.deployment import Deployment, Pool, Role
from dse.serving.routers import Router
from dse.serving.schedulers import Limits, Scheduler
from dse.sim.kv import BlockPool, KVPool, UnitPool

NO_KV_UNITS = 1 << 40


@dataclass(frozen=True, kw_only=True)
class KVSpec:
    """KV memory of one rank in units: blocks, or bytes where `is_uniform` is false. `shares` says
    whether content can be found again.
    """

    n_units: int
    block_tokens: int
    curve: KVCurve
    is_uniform: bool
    shares: bool

    def units_of(self, tokens: int) -> int:
        """Units of a request with `tokens` tokens in the cache."""
        if self.is_uniform:
            return -(-tokens // self.block_tokens)
        return int(self.curve.request_bytes(tokens)) if tokens else 0

    def pool(self) -> KVPool:
        """An empty pool."""
        if self.is_uniform:
            return BlockPool(self.n_units, self.block_tokens)
        return UnitPool(self.n_units, self.units_of)


@dataclass(frozen=True, kw_only=True)
class PoolSpec:
    """One pool: `n_replicas` engines of `dp` ranks and `pp` micro-batches each. `arrival_s` is the
    host's time before a request can be scheduled.
    """

    role: str
    cost: StepCost
    scheduler: Scheduler
    limits: Limits
    kv: KVSpec
    dp: int
    pp: int
    n_replicas: int
    n_gpus: int
    arrival_s: float
    watts: tuple[float, float]
    hbm_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """All pools, the router, and what joins them: `transfer_s(tokens)` moves a prompt's KV from
    prefill to decode.
    """

    pools: tuple[PoolSpec, ...]
    router: Router
    max_context_tokens: int
    transfer_s: Callable[[int], float]
    n_draft: int
    acceptance: float

    @property
    def n_gpus(self) -> int:
        """GPUs of all pools."""
        return sum(pool.n_gpus for pool in self.pools)

    def admits(self, isl_tokens: int, osl_tokens: int) -> bool:
        """Whether an engine accepts such a request: within the model's context and the KV pool."""
        total = isl_tokens + osl_tokens
        if total > self.max_context_tokens:
            return False
        return all(
            pool.kv.units_of(isl_tokens if pool.role == "prefill" else total - 1) <= pool.kv.n_units
            for pool in self.pools
        )


# Pools at hand: those of a large study's last few GPUs, engines and layouts.
_POOLS: Memo[PoolSpec] = Memo(1024)


def compile_run(deployment: Deployment, tier: Any = "auto", **models: Any) -> RunSpec:
    """Compile `deployment`; IllegalError where weights leave no room for KV.

    `models` are `kernels` and `collectives` that replace the catalog's (see `compile_step`).
    Deployments share what they have in common: a replica is compiled once.
    """
    speculative = deployment.speculative
    pools = tuple(_pool(deployment, pool, tier, models) for pool in deployment.pools)
    return RunSpec(
        pools=pools,
        router=deployment.router,
        max_context_tokens=deployment.model.max_context_tokens,
        transfer_s=_transfer(deployment, [pool.kv.curve for pool in pools]),
        n_draft=speculative.n_draft if speculative else 0,
        acceptance=speculative.acceptance if speculative else 0.0,
    )


def compile_pool(deployment: Deployment, role: Role, tier: Any = "auto") -> PoolSpec:
    """Compile the pool of one role alone; IllegalError where weights leave no room for KV."""
    pool = next(each for each in deployment.pools if each.role == role)
    return _pool(deployment, pool, tier, {})


def _pool(deployment: Deployment, pool: Pool, tier: Any, models: dict[str, Any]) -> PoolSpec:
    if models:
        one = _replica(deployment, pool, tier, models)
    else:
        records, facts = decided_by(deployment, pool)
        known = (tier, deployment.kv_pool_bytes, *facts)
        one = _POOLS.of(records, known, lambda: _replica(deployment, pool, tier, models))
    return replace(one, role=pool.role, n_replicas=pool.n_replicas, n_gpus=pool.n_gpus)


def _replica(deployment: Deployment, pool: Pool, tier: Any, models: dict[str, Any]) -> PoolSpec:
    """One replica of `pool`, whatever its role."""
    cost = compile_step(deployment, pool, tier, **models)
    engine, layout = pool.engine, pool.layout
    return PoolSpec(
        role="both",
        cost=cost,
        scheduler=engine.scheduler,
        limits=Limits(engine.max_num_batched_tokens, engine.max_num_seqs, cost.q_tokens),
        kv=kv_spec(deployment, pool),
        dp=layout.dp,
        pp=layout.pp,
        n_replicas=1,
        n_gpus=layout.n_gpus,
        arrival_s=engine.host.arrival_s,
        watts=(pool.gpu.idle_watts, pool.gpu.tdp_watts),
        hbm_bytes_per_s=pool.gpu.hbm_bytes_per_s,
    )


def kv_spec(deployment: Deployment, pool: Pool) -> KVSpec:
    """KV memory of one rank of `pool`; IllegalError where there is none."""
    memory = rank_memory(deployment, pool)
    if not memory.fits:
        raise IllegalError(
            f"{deployment.model.name} on {pool.layout.label()} x {pool.gpu.name}: "
            f"{show(memory.kv_pool_bytes, Bytes)} of {show(memory.hbm_bytes, Bytes)} left for KV",
            "use more GPUs per replica, fewer bits per weight, or a smaller overhead",
        )
    curve = memory.kv
    is_uniform = not curve.windows and not curve.fixed_bytes and curve.full_bytes_per_token > 0
    stateless = not curve.windows and not curve.fixed_bytes and not is_uniform
    n_units = memory.n_blocks if is_uniform else int(memory.kv_pool_bytes)
    return KVSpec(
        n_units=NO_KV_UNITS if stateless else n_units,
        block_tokens=curve.block_tokens,
        curve=curve,
        is_uniform=is_uniform,
        shares=is_uniform and pool.engine.prefix_caching,
    )


def _transfer(deployment: Deployment, curves: Sequence[KVCurve]) -> Callable[[int], float]:
    """Seconds to move the KV of a prompt: each GPU sends and takes its own share at once."""
    if not deployment.is_disaggregated:
        return lambda tokens: 0.0
    pools = deployment.pools
    link = deployment.interconnect
    links = [link] if link is not None else [pool.fabric.scale_out for pool in pools]
    bandwidth = min(each.bytes_per_s for each in links)
    latency = max(each.latency_s for each in links)
    return lambda tokens: latency + max(c.request_bytes(tokens) for c in curves) / bandwidth
