"""Price a step: tables compiled once per deployment, then looked up by a handful of sums.

A step of one pipeline stage takes, on each DP rank, `token(m) + head(rows) + decode(n, mean
context) + Σ prefill(chunk)`; the slowest rank sets the pace, `group(M)` adds the routed experts and
exchanges of all ranks' tokens, and the host what the GPU does not hide. The slowest stage bounds
throughput, the sum of stages is latency.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dse.base.digest import digest
from dse.cost.collectives import collective_model
from dse.cost.engine_kernels import as_engine_runs
from dse.cost.host import exposed_seconds, host_seconds, kernels_of_prompt_step
from dse.cost.kernels import Tier, kernel_model
from dse.cost.lower import Program, program
from dse.cost.memo import Key, Memo
from dse.cost.stages import StageCost, StepGrid, compile_stage
from dse.cost.tables import Array, CollectiveModel, Prices, curve, sheet
from dse.cost.tally import Tally
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import EngineHost

GRAPH_MAX_SEQS = 512  # largest batch that engines capture CUDA graphs for


class RankLoad(NamedTuple):
    """What one DP rank computes in a step: `n_decode` decoding requests whose contexts (with the
    step's own tokens) sum to `context_sum`, and `chunks` of (new, cached) prompt tokens.
    """

    n_decode: int = 0
    context_sum: float = 0.0
    chunks: tuple[tuple[int, int], ...] = ()


class StepTime(NamedTuple):
    """`occupancy_s` until the first stage can take the next micro-batch, `latency_s` until the
    tokens are out; equal without pipeline parallelism. `host_s` is what the host adds to both.
    """

    occupancy_s: float
    latency_s: float
    host_s: float


class StepTables(NamedTuple):
    """The tables as arrays: stages along the first axis of every `_z`."""

    token_x: Array
    token_z: Array
    group_x: Array
    group_z: Array
    head_x: Array
    head_z: Array
    draft_x: Array
    draft_z: Array
    decode_x: Array
    decode_y: Array
    decode_z: Array
    prefill_x: Array
    prefill_y: Array
    prefill_z: Array
    stage_count: Array


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Seconds of any step of one pool's replica, from tables.

    `q_tokens` is what each decoding request computes per step (1, or drafted + 1). `kernels_id`
    digests the coefficients behind the tables. The host takes `launch_s` to launch a step with
    prompt tokens, which no CUDA graph covers.
    """

    grid: StepGrid
    stages: tuple[StageCost, ...]
    host: EngineHost
    q_tokens: int
    dp: int
    kernels_id: str
    launch_s: float = 0.0

    @cached_property
    def tables(self) -> StepTables:
        """All tables as arrays, for compiled readers."""
        g, stages = self.grid, self.stages

        def stack(name: str) -> Array:
            return np.array([getattr(stage, name).seconds for stage in stages])

        return StepTables(
            token_x=g.tokens, token_z=stack("token"), group_x=g.group, group_z=stack("group"),
            head_x=g.seqs, head_z=stack("head"), draft_x=g.seqs, draft_z=stack("draft"),
            decode_x=g.seqs, decode_y=g.context, decode_z=stack("decode"),
            prefill_x=g.chunk, prefill_y=g.context, prefill_z=stack("prefill"),
            stage_count=np.array([float(stage.count) for stage in stages]),
        )  # fmt: skip

    @cached_property
    def _lists(self) -> Any:
        return StepTables(*(array.tolist() for array in self.tables))

    def seconds(self, ranks: Sequence[RankLoad]) -> StepTime:
        """Seconds of a step in which rank i computes `ranks[i]` (one entry per DP rank)."""
        slowest = total = 0.0
        m_group = sum(self.tokens(load) for load in ranks)
        for stage, count in enumerate(self._lists.stage_count):
            local = max(self._rank_seconds(stage, load) for load in ranks)
            local += curve(m_group, self._lists.group_x, self._lists.group_z[stage])
            slowest = max(slowest, local)
            total += count * local
        host_s = max(
            host_seconds(self.host, load.n_decode + len(load.chunks), _new_tokens(load))
            for load in ranks
        )
        exposed = exposed_seconds(self.host, slowest, host_s)
        if any(load.chunks for load in ranks):
            gap = self.host.prefill_gap
            exposed = exposed_seconds(self.host, slowest, host_s, self.launch_s, gap)
        return StepTime(slowest + exposed, total + exposed, exposed)

    def tokens(self, load: RankLoad) -> int:
        """Tokens that a rank computes, the padding of CUDA graphs included."""
        n_decode = load.n_decode
        if load.chunks:
            return n_decode * self.q_tokens + _new_tokens(load)
        return padded(n_decode, self.host.graph_batch_multiple) * self.q_tokens

    def _rank_seconds(self, stage: int, load: RankLoad) -> float:
        t = self._lists
        found = curve(self.tokens(load), t.token_x, t.token_z[stage])
        rows = load.n_decode * self.q_tokens + len(load.chunks)
        found += curve(rows, t.head_x, t.head_z[stage])
        if load.n_decode:
            mean = load.context_sum / load.n_decode
            found += sheet(load.n_decode, mean, t.decode_x, t.decode_y, t.decode_z[stage])
            found += curve(load.n_decode, t.draft_x, t.draft_z[stage])
        if load.chunks:
            # Chunks share one launch, so each adds only what it takes beyond the least one.
            least = t.prefill_z[stage][0][0]
            found += least
            for new, cached in load.chunks:
                z = t.prefill_z[stage]
                found += sheet(new, cached, t.prefill_x, t.prefill_y, z) - least
        return found

    def breakdown(self, ranks: Sequence[RankLoad]) -> dict[str, float]:
        """Seconds of one step by op family; `host` and `wait` (lock-step, pipeline) complete it."""
        tally, time = Tally.empty(self.grid), self.seconds(ranks)
        for load in ranks:
            tally.add(self, load)
        tally.add_group(self, sum(self.tokens(load) for load in ranks))
        families: dict[str, float] = {}
        for (family, _), seconds in tally.parts(self).items():
            families[family] = families.get(family, 0.0) + seconds
        families["host"] = time.host_s
        families["wait"] = max(0.0, time.occupancy_s - sum(families.values()))
        return families

    def decode_seconds(self, n_seqs: Array, context_tokens: Array) -> Array:
        """Seconds (occupancy) of pure decode steps over `n_seqs` requests of a replica, spread
        evenly over its DP ranks, with mean context `context_tokens`; arrays broadcast.
        """
        per_rank = np.ceil(np.asarray(n_seqs, dtype=float) / self.dp)
        per_rank, context = np.broadcast_arrays(per_rank, np.asarray(context_tokens, dtype=float))
        flat = [
            self.seconds([RankLoad(int(n), float(n * c))] * self.dp).occupancy_s
            for n, c in zip(per_rank.ravel(), context.ravel(), strict=True)
        ]
        return np.array(flat).reshape(per_rank.shape)

    def prefill_seconds(self, new_tokens: int, cached_tokens: int = 0) -> float:
        """Latency of a step that computes one prompt chunk on one rank and nothing else."""
        idle = [RankLoad()] * (self.dp - 1)
        chunk = RankLoad(chunks=((new_tokens, cached_tokens),))
        return self.seconds([chunk, *idle]).latency_s


def padded(n_seqs: int, multiple: int) -> int:
    """The CUDA-graph batch that a decode step of `n_seqs` runs as: 1, 2, 4, then multiples."""
    if n_seqs <= 2 or n_seqs > GRAPH_MAX_SEQS or multiple <= 1:
        return n_seqs
    return 4 if n_seqs <= 4 and multiple >= 4 else -(-n_seqs // multiple) * multiple


def _new_tokens(load: RankLoad) -> int:
    return sum(new for new, _ in load.chunks)


def compile_step(
    deployment: Deployment,
    pool: Pool,
    tier: Tier = "auto",
    *,
    kernels: Any = None,
    collectives: CollectiveModel | None = None,
) -> StepCost:
    """Compile the tables of one replica of `pool`; equal pools are compiled once.

    `tier` chooses the kernel model (`roofline`, `cross`, `target`, or the best there is); `kernels`
    and `collectives` replace the models of the catalog.
    """
    if kernels is not None or collectives is not None:
        return _compiled(deployment, pool, _prices(pool, tier, kernels, collectives))
    of_pool = (pool.gpu, pool.fabric, pool.engine)
    prices = _PRICES.of(of_pool, (tier,), lambda: _prices(pool, tier))
    records, facts = decided_by(deployment, pool)
    return _POOLS.of(records, (tier, *facts), lambda: _compiled(deployment, pool, prices))


def decided_by(deployment: Deployment, pool: Pool) -> tuple[tuple[Any, ...], Key]:
    """The records and the facts that decide what a replica of `pool` computes and holds: all but
    its role and the number of replicas.
    """
    precision = deployment.precision
    formats = (*precision.exceptions.items(), *precision.quantised)
    facts = (precision.weights, precision.activations, precision.kv, precision.other, *formats)
    shape = (pool.layout, deployment.routing, deployment.speculative, *facts)
    return (pool.gpu, pool.fabric, pool.engine, deployment.model), shape


# Price lists and pools at hand: those of a large study's last few GPUs, engines and layouts.
_PRICES: Memo[Prices] = Memo(32)
_POOLS: Memo[StepCost] = Memo(1024)


def _prices(
    pool: Pool, tier: Tier, kernels: Any = None, collectives: CollectiveModel | None = None
) -> Prices:
    """What prices the ops of `pool`: the models given, else those of the catalog."""
    engine = pool.engine
    if kernels is None:
        kernels = kernel_model(pool.gpu, engine.name, tier, named=engine.kernels)
        kernels = as_engine_runs(kernels, pool.gpu, engine)
    if collectives is None:
        floor_only = tier == "roofline"
        collectives = collective_model(pool.fabric, engine.name, "floor" if floor_only else "auto")
    return Prices(
        gpu=pool.gpu,
        kernels=kernels,
        collectives=collectives,
        launch_overlap=engine.host.launch_overlap,
    )


def _compiled(deployment: Deployment, pool: Pool, prices: Prices) -> StepCost:
    engine, speculative = pool.engine, deployment.speculative
    work_of = program(deployment, pool)
    q_tokens = 1 + speculative.n_draft if speculative else 1
    grid = StepGrid.of(deployment, pool, q_tokens)
    drafts = _draft_program(work_of, speculative.n_draft) if speculative else None
    stages = tuple(
        compile_stage(work_of, index, count, grid, prices, drafts)
        for index, count in _distinct_stages(work_of)
    )
    host = replace(engine.host, prefill_gap=0.0) if prices.kernels.in_step else engine.host
    return StepCost(
        grid=grid,
        stages=stages,
        host=host,
        q_tokens=q_tokens,
        dp=pool.layout.dp,
        kernels_id=digest([*prices.ids, host]),
        launch_s=host.eager_op_s * kernels_of_prompt_step(work_of),
    )


def _distinct_stages(work_of: Program) -> list[tuple[int, int]]:
    """(index, count) of stages that differ: by their layers, and as first and last."""
    last = len(work_of.stages) - 1
    found: dict[Any, list[int]] = {}
    for index, layers in enumerate(work_of.stages):
        found.setdefault((layers, index == 0, index == last), []).append(index)
    return [(indices[0], len(indices)) for indices in found.values()]


def _draft_program(work_of: Program, n_draft: int) -> Program | None:
    """The model's own speculative module run `n_draft` times, as a program of one stage."""
    module = work_of.model.speculative
    if module is None:
        return None
    layer = replace(module.layer, repeat=n_draft)
    layout = replace(work_of.pool.layout, pp=1)
    return replace(
        work_of,
        model=replace(work_of.model, layers=(layer,)),
        pool=replace(work_of.pool, layout=layout),
    )
