"""One deployment explained: memory, floors, wall order, ceiling and elasticities, as plain data."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from dse.cost.account import decode_floor, prefill_floor, prompt_floor_s, tokens_computed
from dse.cost.floor import StepFloor, Term
from dse.cost.memory import RankMemory, rank_memory
from dse.model.ffn import Routing
from dse.serving.deployment import Deployment, Pool
from dse.serving.legality import Illegal, check, check_context, check_speculative
from dse.serving.slo import SLO
from dse.walls.ceiling import goodput_ceiling, wall_order
from dse.walls.elasticity import elasticities

GIB = 2.0**30
SKEWS = (0.0, 0.6, 1.0)
"""Exponents of expert popularity that `expert_sensitivity` shows."""
MARGINAL = 0.02
"""Share of a GPU's memory within which overheads of engine versions differ: a near verdict."""


def describe(
    deployment: Deployment,
    *,
    context_tokens: int = 8192,
    concurrency: int = 1,
    slo: SLO | None = None,
    gpus: int | None = None,
) -> dict[str, Any]:
    """What `dse walls` answers.

    `context_tokens` is each request's context, `concurrency` the requests in flight in the whole
    deployment, `gpus` the size of its cluster where a layout must fill it.
    A deployment that no engine can start, or that has no room for one such request, has
    `legal: false` and its reasons; what cannot be computed then is null.
    """
    pool = deployment.pool("decode")
    illegal = tuple(illegalities(deployment, context_tokens, gpus))
    found: dict[str, Any] = {
        "model": deployment.model.name,
        "gpu": pool.gpu.name,
        "engine": pool.engine.label,
        "layout": pool.layout.label(),
        "n_gpus": deployment.n_gpus,
        "n_replicas": pool.n_replicas,
        "context_tokens": context_tokens,
        "concurrency": concurrency,
        "legal": not illegal,
        "illegal_reasons": [str(each) for each in illegal],
        "illegal": [asdict(each) for each in illegal],
        "ridge_flop_per_byte": ridge(deployment, pool),
    }
    if illegal:
        return found | dict.fromkeys(("memory", "steps", "goodput_ceiling_tok_per_s_per_gpu"))
    memory = rank_memory(deployment, pool)
    found |= memory_keys(deployment, pool, memory, context_tokens)
    short = list(_shortages(deployment, context_tokens))
    if short:
        found |= {"legal": False, "illegal_reasons": short}
    found |= _load_keys(deployment, pool, memory, context_tokens, concurrency, slo)
    return found


def illegalities(
    deployment: Deployment, context_tokens: int, gpus: int | None = None
) -> Iterator[Illegal]:
    """Every rule that a pool of `deployment` breaks."""
    for pool in deployment.pools:
        yield from check(
            deployment.model,
            deployment.precision,
            pool.layout,
            pool.engine,
            pool.gpu,
            fabric=pool.fabric,
            n_gpus=gpus if len(deployment.pools) == 1 else None,
        )
    yield from check_speculative(deployment.model, deployment.speculative)
    yield from check_context(deployment.model, context_tokens)


def memory_keys(
    deployment: Deployment, pool: Pool, memory: RankMemory, context_tokens: int
) -> dict[str, Any]:
    """Memory of the heaviest rank, and what it means for an engine and for a replica."""
    request = memory.request_bytes(context_tokens)
    margin = memory.kv_pool_bytes - request
    verdict = "marginal" if abs(margin) < MARGINAL * memory.hbm_bytes else "fits"
    if margin < 0 and verdict == "fits":
        verdict = "does not fit"
    capacity = {
        "kv_pool_tokens": memory.kv_pool_tokens(context_tokens),
        "n_blocks": memory.kv_pool_tokens(context_tokens) // memory.kv.block_tokens,
        "b_max": memory.b_max(context_tokens),
    }
    ranks = pool.layout.n_gpus
    inside = {
        "weight_bytes_per_gpu": memory.weight_bytes,
        "weights": dict(memory.weights),
        "kv_bytes_per_token": memory.kv_bytes_per_token,
        "kv_windows": [
            {"window_tokens": window, "bytes_per_token": n_bytes}
            for window, n_bytes in memory.windowed_bytes_per_token
        ],
        "kv_fixed_bytes_per_request": memory.kv_fixed_bytes_per_request,
        "kv_bytes_per_request": request,
        "kv_pool_bytes_per_gpu": memory.kv_pool_bytes,
        "overheads": dict(memory.overheads),
        "hbm_bytes": memory.hbm_bytes,
        "block_tokens": memory.kv.block_tokens,
        "stage": memory.stage,
        "margin_bytes": margin,
        "margin_gib": margin / GIB,
        "verdict": verdict,
        "max_requests_at_context": _ratio(memory.kv_pool_bytes, request),
        "weight_bytes_per_replica": memory.weight_bytes * ranks,
        "kv_pool_bytes_per_replica": max(0.0, memory.kv_pool_bytes) * ranks,
        "kv_pool_tokens_per_replica": capacity["kv_pool_tokens"] * memory.dp,
        "b_max_whole_pool": int(memory.dp * _ratio(memory.kv_pool_bytes, request)),
        "definition": definition(deployment, pool),
    }
    return {"memory": inside | capacity} | capacity


def definition(deployment: Deployment, pool: Pool) -> str:
    """How the capacity is meant: format, share of memory, pool rule and engine."""
    rule = {
        "of_total": "of driver-visible memory, less weights and overheads",
        "of_free": "of what weights and overheads leave of driver-visible memory",
    }[pool.engine.memory.pool_rule]
    share = f"{pool.engine.hbm_fraction:g} {rule}"
    if deployment.kv_pool_bytes is not None:
        share = "pool as stated"
    kv, engine = deployment.precision.kv.value, pool.engine
    hybrid = "windows freed" if engine.memory.hybrid_kv else "windows kept whole"
    return f"{kv} KV, {share}, blocks of {engine.block_tokens} tokens, {hybrid}, {engine.label}"


def step_keys(floor: StepFloor) -> dict[str, Any]:
    """A step's floor interval, its binding resource and its terms."""
    terms = [
        {
            "resource": term.resource,
            "name": term.name,
            "amount": float(term.amount),
            "unit": term.unit,
            "seconds": float(term.seconds),
        }
        for term in floor.terms
    ]
    times = {
        name: float(getattr(floor, name))
        for name in ("t_hbm_s", "t_flop_s", "t_net_s", "t_opt_s", "t_sum_s")
    }
    return {**times, "binding": floor.binding, "terms": terms}


def ridge(deployment: Deployment, pool: Pool) -> float | None:
    """Ridge point of the GPU in the format that the weights compute in (FLOP/B)."""
    peak = pool.gpu.peak_flop_per_s.get(deployment.precision.weights.compute)
    return None if peak is None else peak / pool.gpu.hbm_bytes_per_s


def _load_keys(
    deployment: Deployment,
    pool: Pool,
    memory: RankMemory,
    context_tokens: int,
    concurrency: int,
    slo: SLO | None,
) -> dict[str, Any]:
    prefill = deployment.pool("prefill")
    per_replica = -(-concurrency // pool.n_replicas)
    chunk = min(context_tokens, prefill.engine.max_num_batched_tokens)
    tpot_s = None if slo is None else slo.tpot_s
    room = memory.b_max(context_tokens)
    ceiling = goodput_ceiling(
        deployment, pool, context_tokens=context_tokens, requests_max=room, slo_tpot_s=tpot_s
    )
    decode = step_keys(decode_floor(deployment, pool, per_replica, context_tokens))
    order = wall_order(
        deployment, pool, context_tokens=context_tokens, requests_max=room, slo_tpot_s=tpot_s
    )
    return {
        "steps": {
            "decode": decode | {"n_requests": per_replica, "note": _note(per_replica, room)},
            "prefill": step_keys(prefill_floor(deployment, prefill, chunk, 0))
            | {"new_tokens": chunk, "cached_tokens": 0},
        },
        "ttft_floor_s": prompt_floor_s(deployment, prefill, context_tokens),
        "wall_order": [asdict(each) for each in order],
        "gemm_ridge_batch": _gemm_ridge(deployment, pool),
        "expert_sensitivity": list(_expert_sensitivity(deployment, pool, per_replica)),
        "goodput_ceiling_tok_per_s_per_gpu": ceiling * pool.n_replicas / deployment.n_gpus,
        "elasticities": elasticities(
            deployment, context_tokens=context_tokens, concurrency=per_replica, slo_tpot_s=tpot_s
        ),
    }


def _note(n_requests: int, room: int) -> str:
    """What a reader of a decode step over `n_requests` must know."""
    notes = []
    if n_requests == 1:
        notes.append("layers are serial at batch 1: t_sum is the honest estimate")
    if n_requests > room:
        notes.append(f"a replica holds the KV of {room} such requests at once; the others queue")
    return "; ".join(notes)


def _shortages(deployment: Deployment, context_tokens: int) -> Iterator[str]:
    """Why weights, or one request of this context, do not fit a GPU."""
    for pool in deployment.pools:
        memory = rank_memory(deployment, pool)
        request = memory.request_bytes(context_tokens)
        if memory.kv_pool_bytes >= request and memory.kv_pool_bytes > 0:
            continue
        lack = (request - memory.kv_pool_bytes) / GIB
        overheads = sum(memory.overheads.values()) / GIB
        yield (
            f"weights {memory.weight_bytes / GIB:.2f} GiB + overheads {overheads:.2f} GiB + one "
            f"request of {context_tokens} tokens {request / GIB:.2f} GiB lack {lack:.2f} GiB of "
            f"{memory.hbm_bytes / GIB:.2f} GiB on {pool.gpu.name} ({definition(deployment, pool)})"
        )


def _gemm_ridge(deployment: Deployment, pool: Pool) -> float | None:
    """Batch at which GEMMs cross the ridge: `ridge · bytes per parameter / 2`, × E/k in experts."""
    point = ridge(deployment, pool)
    if point is None:
        return None
    ratios = [
        group.ffn.widths()["experts"] / getattr(group.ffn, "top_k", 1)
        for group in deployment.model.layers
        if group.ffn.is_moe
    ]
    per_parameter = deployment.precision.weights.bytes_per_element
    return point * per_parameter / 2.0 * max(ratios, default=1.0)


def _expert_sensitivity(
    deployment: Deployment, pool: Pool, n_requests: int
) -> Iterator[dict[str, Any]]:
    """Experts that a layer of the mean and of the fullest rank reads under other popularities, and
    what the HBM time of a decode step would be on the mean rank.
    """
    ffn = next((group.ffn for group in deployment.model.layers if group.ffn.is_moe), None)
    if ffn is None:
        return
    n_experts, top_k, ep = ffn.widths()["experts"], int(getattr(ffn, "top_k", 1)), pool.layout.ep
    n_tokens = n_requests * tokens_computed(deployment)
    for exponent in SKEWS:
        routing = Routing(kind="zipf", exponent=exponent) if exponent else Routing()
        mean = float(routing.touched(n_tokens, n_experts, top_k)) / ep
        skewed = replace(deployment, routing=routing)
        floor = decode_floor(skewed, pool, n_requests, 1)
        yield {
            "routing": f"zipf:{exponent:g}" if exponent else "uniform",
            "experts_mean_rank": mean,
            "experts_fullest_rank": routing.touched_on_fullest(n_tokens, n_experts, top_k, ep),
            "experts_s": sum(float(t.seconds) for t in floor.terms if _reads_experts(t)),
        }


def _reads_experts(term: Term) -> bool:
    return term.resource == "hbm" and term.name == "experts"


def _ratio(a: float, b: float) -> float:
    return max(0.0, a) / b if b else 0.0
