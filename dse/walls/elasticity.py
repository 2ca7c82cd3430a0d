"""Elasticities: by how many percent a ceiling or floor moves when one fact moves by a percent."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dse.cost.account import decode_floor, prefill_floor
from dse.cost.memory import rank_memory
from dse.hardware.fabric import Fabric
from dse.hardware.gpu import GPU
from dse.serving.deployment import Deployment, Pool
from dse.walls.ceiling import goodput_ceiling

STEP = 0.01
Change = Callable[[float], Deployment]


def elasticities(
    deployment: Deployment, *, context_tokens: int, concurrency: int, slo_tpot_s: float | None
) -> list[dict[str, Any]]:
    """D ln(quantity) / d ln(fact) for every fact of the GPUs and fabrics, by central differences.

    Quantities: the goodput ceiling, the requests that the KV pool holds (not rounded), and `t_opt`
    of the decode step over `concurrency` requests and of a prefill chunk.
    """
    found = []
    for fact, changed in _facts(deployment):
        low = _quantities(changed(1.0 - STEP), context_tokens, concurrency, slo_tpot_s)
        high = _quantities(changed(1.0 + STEP), context_tokens, concurrency, slo_tpot_s)
        row = {name: _slope(low[name], high[name]) for name in low}
        if any(value for value in row.values()):
            found.append({"fact": fact, **row})
    return found


def _quantities(
    deployment: Deployment, context_tokens: int, concurrency: int, slo_tpot_s: float | None
) -> dict[str, float]:
    pool, prefill = deployment.pool("decode"), deployment.pool("prefill")
    memory = rank_memory(deployment, pool)
    room = memory.dp * max(0.0, memory.kv_pool_bytes) / memory.request_bytes(context_tokens)
    chunk = min(context_tokens, prefill.engine.max_num_batched_tokens)
    ceiling = goodput_ceiling(
        deployment, pool, context_tokens=context_tokens, requests_max=room, slo_tpot_s=slo_tpot_s
    )
    return {
        "goodput_ceiling": ceiling,
        "b_max": room,
        "decode_t_opt": float(decode_floor(deployment, pool, concurrency, context_tokens).t_opt_s),
        "prefill_t_opt": float(prefill_floor(deployment, prefill, chunk, 0).t_opt_s),
    }


def _slope(low: float, high: float) -> float | None:
    """Central difference on logarithms; None where there is nothing to move."""
    if low <= 0 or high <= 0:
        return None
    slope = (high - low) / ((high + low) / 2.0) / (2.0 * STEP)
    return 0.0 if abs(slope) < 1e-6 else slope


def _facts(deployment: Deployment) -> Iterator[tuple[str, Change]]:
    pool = deployment.pool("decode")
    for name in ("hbm_bytes", "hbm_bytes_per_s", "sfu_op_per_s"):
        yield f"gpu.{name}", lambda by, name=name: _gpu(deployment, name, by)  # type: ignore[misc]
    for key in pool.gpu.peak_flop_per_s:
        yield f"gpu.peak_{key}_flop_per_s", lambda by, k=key: _peak(deployment, k, by)  # type: ignore[misc]
    for level in ("scale_up", "scale_out"):
        for name in ("bytes_per_s", "latency_floor_s", "all_reduce_bytes_per_s"):
            if getattr(getattr(pool.fabric, level), name) is not None:
                yield (
                    f"fabric.{level}.{name}",
                    lambda by, at=level, name=name: _link(deployment, at, name, by),  # type: ignore[misc]
                )


def _gpu(deployment: Deployment, name: str, by: float) -> Deployment:
    def changed(gpu: GPU) -> GPU:
        return replace(gpu, **{name: getattr(gpu, name) * by})

    return _each(deployment, lambda pool: replace(pool, gpu=changed(pool.gpu)))


def _peak(deployment: Deployment, key: str, by: float) -> Deployment:
    def changed(gpu: GPU) -> GPU:
        peaks = dict(gpu.peak_flop_per_s)
        return replace(gpu, peak_flop_per_s=peaks | {key: peaks.get(key, 0.0) * by})

    return _each(deployment, lambda pool: replace(pool, gpu=changed(pool.gpu)))


def _link(deployment: Deployment, level: str, name: str, by: float) -> Deployment:
    def changed(fabric: Fabric) -> Fabric:
        link = getattr(fabric, level)
        value = getattr(link, name)
        moved = value if value is None else value * by
        return replace(fabric, **{level: replace(link, **{name: moved})})

    return _each(deployment, lambda pool: replace(pool, fabric=changed(pool.fabric)))


def _each(deployment: Deployment, change: Callable[[Pool], Pool]) -> Deployment:
    return replace(deployment, pools=tuple(change(pool) for pool in deployment.pools))
