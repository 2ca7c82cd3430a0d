"""Elasticities: by how many percent a ceiling or floor moves when one fact moves by a percent."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dse.cost.account import decode_work, prefill_work, tokens_computed
from dse.cost.floor import StepWork
from dse.cost.memory import rank_memory, stage_contents
from dse.hardware.fabric import Fabric
from dse.hardware.gpu import GPU
from dse.serving.deployment import Deployment, Pool
from dse.walls.ceiling import Array, batches_up_to, best_rate

STEP = 0.01
Change = Callable[[float], Deployment]


def elasticities(
    deployment: Deployment, *, context_tokens: int, concurrency: int, slo_tpot_s: float | None
) -> list[dict[str, Any]]:
    """D ln(quantity) / d ln(fact) for every fact of the GPUs and fabrics, by central differences.

    Quantities: the goodput ceiling, the requests that the KV pool holds (not rounded), and `t_opt`
    of the decode step over `concurrency` requests and of a prefill chunk.
    """
    asked = _Quantities(
        deployment,
        context_tokens=context_tokens,
        concurrency=concurrency,
        slo_tpot_s=slo_tpot_s,
    )
    found = []
    for fact, changed in _facts(deployment):
        low, high = asked.of(changed(1.0 - STEP)), asked.of(changed(1.0 + STEP))
        row = {name: _slope(low[name], high[name]) for name in low}
        if any(value for value in row.values()):
            found.append({"fact": fact, **row})
    return found


class _Quantities:
    """The quantities of deployments that differ in the facts of GPUs and fabrics alone: what their
    ranks hold and what their steps take from each resource is counted once.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        context_tokens: int,
        concurrency: int,
        slo_tpot_s: float | None,
    ) -> None:
        pool, prefill = deployment.pool("decode"), deployment.pool("prefill")
        chunk = min(context_tokens, prefill.engine.max_num_batched_tokens)
        self._first = deployment
        self._context_tokens = context_tokens
        self._slo_tpot_s = slo_tpot_s
        self._contents = stage_contents(deployment, pool)
        self._decode = decode_work(deployment, pool, concurrency, context_tokens)
        self._prefill = prefill_work(deployment, prefill, chunk, 0)
        self._by_room: dict[float, tuple[Array, StepWork]] = {}

    def of(self, deployment: Deployment) -> dict[str, float]:
        """The quantities of `deployment` by name; see `elasticities`."""
        pool, prefill = deployment.pool("decode"), deployment.pool("prefill")
        memory = rank_memory(deployment, pool, self._contents)
        room = memory.dp * max(0.0, memory.kv_pool_bytes)
        room /= memory.request_bytes(self._context_tokens)
        return {
            "goodput_ceiling": self._ceiling(pool, room),
            "b_max": room,
            "decode_t_opt": float(self._decode.floor(pool.gpu, pool.fabric).t_opt_s),
            "prefill_t_opt": float(self._prefill.floor(prefill.gpu, prefill.fabric).t_opt_s),
        }

    def _ceiling(self, pool: Pool, room: float) -> float:
        """`goodput_ceiling` of `pool` with `room` requests."""
        if room < 1:
            return 0.0
        if room not in self._by_room:
            batches = batches_up_to(room)
            work = decode_work(self._first, pool, batches, self._context_tokens)
            self._by_room[room] = batches, work
        batches, work = self._by_room[room]
        floor = work.floor(pool.gpu, pool.fabric)
        per_step = tokens_computed(self._first)
        return best_rate(floor, batches, pool.layout.pp, per_step, self._slo_tpot_s)


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
