"""Facts of a deployment as plain numbers: what the walls' formulas read as columns.

Seconds are at the peak rates and latency floors of the deployment's own GPU and fabric, per rank
and summed over pipeline stages. Columns that start with `prefill_` are of the pool that prefills,
the others of the one that decodes; they are one pool unless the deployment is disaggregated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dse.cost.coefficients import (
    MAX_KNOTS,
    Amounts,
    Coefficients,
    Curve,
    coefficients,
    message_seconds,
)
from dse.cost.memory import RankMemory, rank_memory, stage_contents
from dse.hardware.gpu import GPU
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout

T = TypeVar("T")
Array = NDArray[np.float64]

Facts = dict[str, float]

NO_LIMIT = 1e15
"""Stands for infinity where arithmetic must stay finite."""


@dataclass(slots=True)
class FactsCache:
    """What deployments share, by the records it depends on: structures are products of few parts.

    Records are told apart by identity and kept, so that no key is used twice.
    """

    known: dict[tuple[Any, ...], tuple[Any, Any]] = field(default_factory=dict)

    def of(self, what: str, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What `make` gives for these records, computed once."""
        key = (what, *map(id, parts))
        if key not in self.known:
            self.known[key] = (parts, make())
        found: T = self.known[key][1]
        return found

    def layout(self, layout: Layout) -> Layout:
        """One object for all equal layouts."""
        found: Layout = self.known.setdefault(("layout", layout), (None, layout))[1]
        return found


def facts_of(deployment: Deployment, cache: FactsCache | None = None) -> Facts:
    """Every fact that a wall reads, by column name; units are in the names."""
    known = cache or FactsCache()
    prefill, decode = deployment.pool("prefill"), deployment.pool("decode")
    rooms = [room_of(deployment, pool, known) for pool in deployment.pools]
    needed, limit = min(rooms, key=lambda need: need[1] - need[0])
    found: Facts = {
        "n_gpus": float(deployment.n_gpus),
        "n_replicas": float(decode.n_replicas),
        "prefill_n_replicas": float(prefill.n_replicas),
        "is_disaggregated": float(deployment.is_disaggregated),
        "max_context_tokens": float(deployment.model.max_context_tokens),
        "replica_gpus": float(max(pool.layout.n_gpus for pool in deployment.pools)),
        "fabric_gpus": float(min(pool.fabric.scale_out.n_gpus for pool in deployment.pools)),
        "hbm_needed_bytes": needed,
        "hbm_limit_bytes": limit,
    }
    found |= decode_facts(deployment, decode, known)
    return found | prefill_facts(deployment, prefill, known)


def decode_facts(deployment: Deployment, pool: Pool, known: FactsCache) -> Facts:
    """The facts that stem from the pool that decodes, whatever its number of replicas."""
    return _decode_pool(pool, _memory(known, deployment, pool)) | _rates_of(
        known, deployment, pool, _decode, ""
    )


def prefill_facts(deployment: Deployment, pool: Pool, known: FactsCache) -> Facts:
    """The facts that stem from the pool that prefills, whatever its number of replicas."""
    return _prefill_pool(pool, _memory(known, deployment, pool)) | _rates_of(
        known, deployment, pool, _prefill, "prefill_"
    )


def room_of(deployment: Deployment, pool: Pool, known: FactsCache) -> tuple[float, float]:
    """Bytes that must fit beside the KV pool of a rank, and those there are."""
    memory = _memory(known, deployment, pool)
    fraction = pool.engine.hbm_fraction if pool.engine.memory.pool_rule == "of_total" else 1.0
    used = memory.weight_bytes + sum(memory.overheads.values())
    stated = deployment.kv_pool_bytes is not None
    return 0.0 if stated else used, fraction * pool.gpu.hbm_bytes


def _rates_of(
    known: FactsCache,
    deployment: Deployment,
    pool: Pool,
    rates: Callable[[Coefficients], "_Rates"],
    prefix: str,
) -> Facts:
    shape = _shape(known, deployment, pool)
    worked = known.of("coefficients", shape, lambda: coefficients(deployment, pool))
    timed = known.of(f"{prefix}rates", shape, lambda: rates(worked)).on(pool.gpu)
    parts = (*shape, pool.fabric)
    return timed | known.of(f"{prefix}network", parts, lambda: _network(worked, pool, prefix))


def _shape(known: FactsCache, deployment: Deployment, pool: Pool) -> tuple[Any, ...]:
    """The records that decide what a rank computes and holds."""
    return (
        deployment.model,
        deployment.precision,
        known.layout(pool.layout),
        deployment.speculative,
        deployment.routing,
        pool.engine,
    )


def _memory(known: FactsCache, deployment: Deployment, pool: Pool) -> RankMemory:
    shape = _shape(known, deployment, pool)
    contents = known.of("contents", shape, lambda: stage_contents(deployment, pool))
    return rank_memory(deployment, pool, contents)


def longest_request_tokens(memory: RankMemory) -> int:
    """The longest context of which one request fits the pool alone."""
    if not memory.fits:
        return 0
    kv, block = memory.kv, memory.kv.block_tokens
    knot = max((window for window, _ in kv.windows), default=0)
    whole = -(-knot // block)
    spare = memory.kv_pool_bytes - memory.request_bytes(whole * block)
    if spare >= 0 or not kv.windows:
        per_block = kv.full_bytes_per_token * block
        more = int(spare // per_block) if per_block else int(NO_LIMIT)
        return (whole + more) * block
    low, high = 1, whole
    while high - low > 1:
        middle = (low + high) // 2
        fits = memory.request_bytes(middle * block) <= memory.kv_pool_bytes
        low, high = (middle, high) if fits else (low, middle)
    return low * block


def _decode_pool(pool: Pool, memory: RankMemory) -> Facts:
    found: Facts = {
        "dp": float(pool.layout.dp),
        "pp": float(pool.layout.pp),
        "max_num_seqs": float(pool.engine.max_num_seqs),
        "kv_pool_bytes": max(0.0, memory.kv_pool_bytes),
        "kv_longest_tokens": float(longest_request_tokens(memory)),
        "kv_full_bytes_per_token": memory.kv.full_bytes_per_token,
        "kv_fixed_bytes": memory.kv.fixed_bytes,
    }
    windows = sorted(memory.kv.windows)[-MAX_KNOTS:]
    for i in range(MAX_KNOTS):
        window, n_bytes = windows[i] if i < len(windows) else (1, 0.0)
        found[f"kv_window_{i}_tokens"] = float(window)
        found[f"kv_window_{i}_bytes_per_token"] = n_bytes
    return found


def _prefill_pool(pool: Pool, memory: RankMemory) -> Facts:
    return {
        "prefill_dp": float(pool.layout.dp),
        "prefill_pp": float(pool.layout.pp),
        "prefill_budget_tokens": float(pool.engine.max_num_batched_tokens),
        "prefill_kv_longest_tokens": float(longest_request_tokens(memory)),
    }


class _Rates(NamedTuple):
    """Amounts of a shape as arrays, a row a fact: what a GPU's rates turn into seconds.

    `names` are the facts by resource; `flop` has a column for each of `formats`.
    """

    names: dict[str, tuple[str, ...]]
    hbm: Array
    sfu: Array
    flop: Array
    formats: tuple[str, ...]
    constants: Facts

    def on(self, gpu: GPU) -> Facts:
        """Seconds of every row at the GPU's peaks."""
        peaks = gpu.peak_flop_per_s
        per_flop = [1.0 / peaks.get(name, peaks["bf16"]) for name in self.formats]
        times = {
            "hbm": self.hbm / gpu.hbm_bytes_per_s,
            "flop": self.flop @ np.array(per_flop),
            "sfu": self.sfu / gpu.sfu_op_per_s,
        }
        found = dict(self.constants)
        for resource, values in times.items():
            found.update(zip(self.names[resource], values.tolist(), strict=True))
        return found


def _decode(known: Coefficients) -> _Rates:
    q = float(known.q_tokens)
    request: dict[str, float] = {}
    for amounts, scale in ((known.token, q), (known.row, q), (known.context.fixed, 1.0)):
        for key, amount in amounts.items():
            request[key] = request.get(key, 0.0) + scale * amount
    rows: dict[str, Amounts] = {
        "{}_step_s": known.step,
        "{}_group_s": {key: q * amount for key, amount in known.group.items()},
        "{}_request_s": request,
        "experts_all_{}_s": {"hbm": known.experts.bytes_all},
    }
    constants = {"tokens_per_step_max": q, "experts_log_miss": _log(known.experts.miss)}
    return _rates(rows, constants, known.context, "context")


def _prefill(known: Coefficients) -> _Rates:
    rows: dict[str, Amounts] = {
        "prefill_{}_step_s": known.step,
        "prefill_{}_token_s": known.token,
        "prefill_{}_group_s": known.group,
        "prefill_{}_row_s": known.row,
        "prefill_experts_all_{}_s": {"hbm": known.experts.bytes_all},
    }
    constants = {"prefill_experts_log_miss": _log(known.experts.miss)}
    return _rates(rows, constants, known.position, "prefill_position")


def _rates(rows: dict[str, Amounts], constants: Facts, curve: Curve, name: str) -> _Rates:
    """Rows as arrays, the slope and caps of `curve` among them."""
    whole = {**rows, f"{name}_{{}}_slope_s": curve.slope}
    fixed = dict(constants)
    for i in range(MAX_KNOTS):
        is_there = i < len(curve.knots)
        fixed[f"{name}_knot_{i}_tokens"] = curve.knots[i] if is_there else 1.0
        whole[f"{name}_{{}}_cap_{i}_s"] = curve.caps[i] if is_there else {}
    keys = dict.fromkeys(key for amounts in whole.values() for key in amounts)
    formats = tuple(key for key in keys if key.startswith("flop:"))
    table = {
        key: np.array([amounts.get(key, 0.0) for amounts in whole.values()])
        for key in ("hbm", "sfu", *formats)
    }
    flop = np.array([table[key] for key in formats]).T.reshape(len(whole), len(formats))
    return _Rates(
        names={each: tuple(n.format(each) for n in whole) for each in ("hbm", "flop", "sfu")},
        hbm=table["hbm"],
        sfu=table["sfu"],
        flop=flop,
        formats=tuple(key.removeprefix("flop:") for key in formats),
        constants=fixed,
    )


def _log(miss: float) -> float:
    """The logarithm of a chance, finite at 0."""
    return math.log(max(miss, 1e-300))


def _network(known: Coefficients, pool: Pool, prefix: str) -> Facts:
    tokens = 1 if prefix else known.q_tokens
    latency, token = message_seconds(known.messages, pool.fabric)
    _, group = message_seconds(known.group_messages, pool.fabric)
    row_latency, row = message_seconds(known.row_messages, pool.fabric)
    rows = 0.0 if prefix else row * tokens
    return {
        f"{prefix}net_step_s": latency + row_latency,
        f"{prefix}net_token_s": token * tokens + rows,
        f"{prefix}net_group_s": group * tokens,
    }
