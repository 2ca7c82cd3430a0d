"""A deployment as the few tables that the saturation model reads, compiled once and then stacked.

Time comes from the step tables that the simulator uses (`cost.step`), priced by the kernel model or
by fitted constants; room comes from `cost.memory`. A *lane* is what steps on its own: one pipeline
micro-batch of one attention-DP rank of one replica.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dse.cost.memory import RankMemory, rank_memory
from dse.cost.step import StepCost, compile_step
from dse.cost.tables import Array, octaves
from dse.saturation.constants import ConstantKernels, Constants, SaturationFit
from dse.serving.deployment import Deployment, Pool

TOKENS = octaves(2**20)
SEQS = octaves(2**14, halves_from=16)
CONTEXT = np.concatenate([[1.0], octaves(2**21, start=64, halves_from=np.inf)])

# Share of the pool that live contexts fill when requests queue for it, without a fit.
POOL_USE = 0.92

Value = float | Array

SCHEDULES = ("chunked_prefill", "prefill_first", "static")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One deployment; times are those of a pass through all pipeline stages.

    `token_s` and `group_s` on `TOKENS`, `head_s` and `draft_s` on `SEQS`, `decode_s` on
    `SEQS` × `CONTEXT`, `prompt_s` (attention of a whole prompt, in chunks) and `kv_bytes` (stored
    by a request) on `CONTEXT`. `pool_bytes` is what live contexts fill on a lane when it is short,
    the share `pool_use` of the pool; `lanes` how many there are on `n_gpus` GPUs. `host_step_s`,
    `host_request_s` and `host_token_s` are hidden behind the GPU if `host_overlapped`; `mixed_s` is
    added to a step that holds prompt tokens, which takes longer by the
    share `prefill_gap`, and `eager_s` at least.
    """

    token_s: Array
    group_s: Array
    head_s: Array
    draft_s: Array
    decode_s: Array
    prompt_s: Array
    kv_bytes: Array
    host_step_s: Value
    host_request_s: Value
    host_token_s: Value
    host_overlapped: Value
    arrival_s: Value
    mixed_s: Value
    launch_s: Value
    eager_s: Value
    prefill_gap: Value
    pool_bytes: Value
    pool_use: Value
    lanes: Value
    dp: Value
    pp: Value
    budget_tokens: Value
    max_seqs: Value
    graph_multiple: Value
    q_tokens: Value
    tokens_per_step: Value
    schedule: Value
    n_gpus: Value


Curves = Curve  # every field with the deployments along a new first axis


def curve_of(
    deployment: Deployment,
    fit: SaturationFit | Constants | None = None,
    *,
    phase: Literal["prefill", "decode"] = "decode",
) -> Curve:
    """Compile the pool that runs `phase` (the only one, where they share it).

    Times follow `fit` where given, otherwise the kernel model of the pool's GPU and engine.
    """
    pool = deployment.pool(phase)
    constants = fit.constants if isinstance(fit, SaturationFit) else fit
    cost = _step_cost(deployment, pool, constants)
    memory = rank_memory(deployment, pool)
    layout, engine = pool.layout, pool.engine
    use = constants.pool_use if constants else POOL_USE
    layers = deployment.model.n_layers
    speculative = deployment.speculative
    return Curve(
        **_times(cost, layout.pp),
        prompt_s=_prompt_seconds(cost, engine.max_num_batched_tokens),
        kv_bytes=_kv_bytes(memory),
        host_step_s=cost.host.step_s,
        host_request_s=cost.host.request_s,
        host_token_s=cost.host.prefill_token_s,
        host_overlapped=float(cost.host.overlapped),
        arrival_s=cost.host.arrival_s,
        mixed_s=constants.prefill_layer_s * layers if constants else 0.0,
        launch_s=float(np.sum(cost.tables.stage_count * cost.tables.prefill_z[:, 0, 0])),
        eager_s=cost.launch_s,
        prefill_gap=cost.host.prefill_gap,
        pool_use=use,
        pool_bytes=max(use * memory.kv_pool_bytes, 0.0) / layout.pp,
        lanes=float(pool.n_replicas * layout.dp * layout.pp),
        dp=float(layout.dp),
        pp=float(layout.pp),
        budget_tokens=float(engine.max_num_batched_tokens),
        max_seqs=max(engine.max_num_seqs / layout.pp, 1.0),
        graph_multiple=float(cost.host.graph_batch_multiple),
        q_tokens=float(cost.q_tokens),
        tokens_per_step=speculative.tokens_per_step if speculative else 1.0,
        schedule=float(SCHEDULES.index(engine.scheduler.kind)),  # type: ignore[attr-defined]
        n_gpus=float(pool.n_gpus),
    )


def stack(curves: Sequence[Curve]) -> Curves:
    """The curves with the deployment as first axis of each field."""
    found = {
        each.name: np.stack([np.asarray(getattr(curve, each.name)) for curve in curves])
        for each in fields(Curve)
    }
    return Curve(**found)


def take(curves: Curves, index: NDArray[np.intp]) -> Curves:
    """The deployments of `curves` at `index`, in that order, repeated where it repeats."""
    found = {each.name: np.asarray(getattr(curves, each.name))[index] for each in fields(Curve)}
    return Curve(**found)


def _step_cost(deployment: Deployment, pool: Pool, constants: Constants | None) -> StepCost:
    if constants is None:
        return compile_step(deployment, pool)
    host = replace(
        pool.engine.host,
        step_s=constants.step_s,
        request_s=constants.request_s,
        prefill_token_s=0.0,
        overlapped=False,
        graph_batch_multiple=1,
        launch_overlap=0.0,
        eager_op_s=0.0,
        prefill_gap=0.0,
    )
    pool = replace(pool, engine=replace(pool.engine, host=host))
    return compile_step(
        deployment, pool, kernels=ConstantKernels(gpu=pool.gpu, constants=constants)
    )


def _times(cost: StepCost, pp: int) -> dict[str, Any]:
    """Tables on the common grids, summed over stages. With micro-batches in flight each pass waits
    for the slowest stage, hence the factor.
    """
    tables, count = cost.tables, cost.tables.stage_count
    middle = len(tables.token_x) // 2
    each = tables.token_z[:, middle] + tables.head_z[:, 0]
    waits = pp * float(each.max()) / float(np.sum(count * each)) if each.max() > 0 else 1.0

    def line(name: str, grid: Array) -> Array:
        x, z = getattr(tables, f"{name}_x"), getattr(tables, f"{name}_z")
        return waits * _extended(grid, x, np.tensordot(count, z, axes=1))

    whole = np.tensordot(count, tables.decode_z, axes=1)
    by_context = np.stack([_extended(CONTEXT, tables.decode_y, row) for row in whole])
    by_both = np.stack([_extended(SEQS, tables.decode_x, column) for column in by_context.T])
    return {
        "token_s": line("token", TOKENS),
        "group_s": line("group", TOKENS),
        "head_s": line("head", SEQS),
        "draft_s": line("draft", SEQS),
        "decode_s": waits * by_both.T,
    }


def _prompt_seconds(cost: StepCost, budget_tokens: int) -> Array:
    """Attention of whole prompts of `CONTEXT` tokens in chunks of the budget, without the launch
    that the chunks of a step share.
    """
    tables = cost.tables
    z = np.tensordot(tables.stage_count, tables.prefill_z, axes=1)

    def extra(new: Array, cached: Array) -> Array:
        chunk = _sheet(new, cached, tables.prefill_x, tables.prefill_y, z)
        return np.where(new > 0, np.maximum(chunk - z[0, 0], 0.0), 0.0)

    starts = np.arange(0.0, CONTEXT[-1] + 1.0, budget_tokens)
    whole = np.cumsum(extra(np.full(len(starts), float(budget_tokens)), starts))
    full = (CONTEXT // budget_tokens).astype(np.intp)
    before = np.where(full > 0, whole[np.maximum(full - 1, 0)], 0.0)
    cached = np.asarray(full * float(budget_tokens))
    return np.asarray(before + extra(CONTEXT - cached, cached))


def _kv_bytes(memory: RankMemory) -> Array:
    """Mean bytes of a request at each context of `CONTEXT`: its last block is half full."""
    kv, half = memory.kv, memory.kv.block_tokens / 2.0
    total = np.full(len(CONTEXT), kv.fixed_bytes) + kv.full_bytes_per_token * (CONTEXT + half)
    for window, per_token in kv.windows:
        total = total + per_token * (np.minimum(CONTEXT, window) + half)
    return np.maximum(total, 1.0)


def _extended(x: Array, xs: Array, ys: Array) -> Array:
    """Linear interpolation at `x`; outside the grid its end segments go on."""
    cell = np.clip(np.searchsorted(xs, x, side="right") - 1, 0, len(xs) - 2)
    share = (x - xs[cell]) / (xs[cell + 1] - xs[cell])
    return np.asarray(ys[cell] + share * (ys[cell + 1] - ys[cell]))


def _sheet(x: Array, y: Array, xs: Array, ys: Array, zs: Array) -> Array:
    """Bilinear interpolation of `zs` at (`x`, `y`), neither taken below the grid."""
    x, y = np.maximum(x, xs[0]), np.maximum(y, ys[0])
    i = np.clip(np.searchsorted(xs, x, side="right") - 1, 0, len(xs) - 2)
    j = np.clip(np.searchsorted(ys, y, side="right") - 1, 0, len(ys) - 2)
    a, b = (x - xs[i]) / (xs[i + 1] - xs[i]), (y - ys[j]) / (ys[j + 1] - ys[j])
    near = zs[i, j] + a * (zs[i + 1, j] - zs[i, j])
    far = zs[i, j + 1] + a * (zs[i + 1, j + 1] - zs[i, j + 1])
    return np.asarray(near + b * (far - near))
