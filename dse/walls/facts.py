"""Facts of a deployment as plain numbers: what the walls' formulas read as columns.

Seconds are at the peak rates and latency floors of the deployment's own GPU and fabric, per rank
and summed over pipeline stages. Columns that start with `prefill_` are of the pool that prefills,
the others of the one that decodes; they are one pool unless the deployment is disaggregated.
"""

from dataclasses import dataclass, field
from typing import Any

from dse.cost.coefficients import (
    MAX_KNOTS,
    Amounts,
    Coefficients,
    Curve,
    coefficients,
    message_seconds,
    seconds,
)
from dse.cost.memory import RankMemory, rank_memory
from dse.serving.deployment import Deployment, Pool

Facts = dict[str, float]

RESOURCES = ("hbm", "flop", "sfu")
NO_LIMIT = 1e15
"""Stands for infinity where arithmetic must stay finite."""


@dataclass(slots=True)
class FactsCache:
    """Coefficients by what they depend on, so that GPUs and fabrics share them.

    The records that keys stand for are kept, so that no key is used twice.
    """

    known: dict[Any, tuple[Any, Coefficients]] = field(default_factory=dict)

    def of(self, deployment: Deployment, pool: Pool) -> Coefficients:
        """The coefficients of `pool`, computed once per model, precision, layout and sharding."""
        memory = pool.engine.memory
        whose = (deployment.model, deployment.precision)
        key = (
            *map(id, whose),
            pool.layout,
            deployment.speculative,
            deployment.routing,
            pool.engine.exchange,
            memory.shared_expert_sharded,
            memory.dense_ffn_over_dp,
            memory.vocab_over_dp,
        )
        if key not in self.known:
            self.known[key] = (whose, coefficients(deployment, pool))
        return self.known[key][1]


def facts_of(deployment: Deployment, cache: FactsCache | None = None) -> Facts:
    """Every fact that a wall reads, by column name; units are in the names."""
    known = cache or FactsCache()
    prefill, decode = deployment.pool("prefill"), deployment.pool("decode")
    memories = {pool.role: rank_memory(deployment, pool) for pool in deployment.pools}
    found: Facts = {
        "n_gpus": float(deployment.n_gpus),
        "n_replicas": float(decode.n_replicas),
        "is_disaggregated": float(deployment.is_disaggregated),
        "max_context_tokens": float(deployment.model.max_context_tokens),
        "replica_gpus": float(max(pool.layout.n_gpus for pool in deployment.pools)),
        "fabric_gpus": float(min(pool.fabric.scale_out.n_gpus for pool in deployment.pools)),
    }
    found |= _room(deployment, memories)
    found |= _decode(known.of(deployment, decode), decode, memories[decode.role])
    found |= _prefill(known.of(deployment, prefill), prefill, memories[prefill.role])
    return found


def longest_request_tokens(memory: RankMemory) -> int:
    """The longest context of which one request fits the pool alone."""
    if not memory.fits:
        return 0
    block, low = memory.kv.block_tokens, 1
    high = 2
    while high < NO_LIMIT and memory.request_bytes(high * block) <= memory.kv_pool_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = memory.request_bytes(middle * block) <= memory.kv_pool_bytes
        low, high = (middle, high) if fits else (low, middle)
    return low * block


def _room(deployment: Deployment, memories: dict[Any, RankMemory]) -> Facts:
    """Bytes that must fit beside the KV pool, of the rank with the least room."""
    needs = []
    for pool in deployment.pools:
        memory = memories[pool.role]
        fraction = pool.engine.hbm_fraction if pool.engine.memory.pool_rule == "of_total" else 1.0
        used = memory.weight_bytes + sum(memory.overheads.values())
        stated = deployment.kv_pool_bytes is not None
        needs.append((0.0 if stated else used, fraction * pool.gpu.hbm_bytes))
    needed, limit = min(needs, key=lambda need: need[1] - need[0])
    return {"hbm_needed_bytes": needed, "hbm_limit_bytes": limit}


def _decode(known: Coefficients, pool: Pool, memory: RankMemory) -> Facts:
    layout, gpu = pool.layout, pool.gpu
    found: Facts = {
        "dp": float(layout.dp),
        "pp": float(layout.pp),
        "max_num_seqs": float(pool.engine.max_num_seqs),
        "tokens_per_step_max": float(known.q_tokens),
        "kv_pool_bytes": max(0.0, memory.kv_pool_bytes),
        "kv_longest_tokens": float(longest_request_tokens(memory)),
        "kv_full_bytes_per_token": memory.kv.full_bytes_per_token,
        "kv_fixed_bytes": memory.kv.fixed_bytes,
        "experts_all_s": known.experts.bytes_all / gpu.hbm_bytes_per_s,
        "experts_miss": known.experts.miss,
    }
    windows = sorted(memory.kv.windows)[-MAX_KNOTS:]
    for i in range(MAX_KNOTS):
        window, n_bytes = windows[i] if i < len(windows) else (1, 0.0)
        found[f"kv_window_{i}_tokens"] = float(window)
        found[f"kv_window_{i}_bytes_per_token"] = n_bytes
    q = known.q_tokens
    parts: dict[str, list[tuple[Amounts, float]]] = {
        "step": [(known.step, 1.0)],
        "group": [(known.group, q)],
        "request": [(known.token, q), (known.row, q), (known.context.fixed, 1.0)],
    }
    for name, amounts in parts.items():
        for resource in RESOURCES:
            total = sum(scale * seconds(amount, gpu)[resource] for amount, scale in amounts)
            found[f"{resource}_{name}_s"] = total
    found |= _curve(known.context, pool, "context")
    return found | _network(known, pool, q, "")


def _prefill(known: Coefficients, pool: Pool, memory: RankMemory) -> Facts:
    gpu, layout = pool.gpu, pool.layout
    found: Facts = {
        "prefill_n_replicas": float(pool.n_replicas),
        "prefill_dp": float(layout.dp),
        "prefill_pp": float(layout.pp),
        "prefill_budget_tokens": float(pool.engine.max_num_batched_tokens),
        "prefill_kv_longest_tokens": float(longest_request_tokens(memory)),
        "prefill_experts_all_s": known.experts.bytes_all / gpu.hbm_bytes_per_s,
        "prefill_experts_miss": known.experts.miss,
    }
    for name, amount in {
        "step": known.step,
        "token": known.token,
        "group": known.group,
        "row": known.row,
    }.items():
        for resource, value in seconds(amount, gpu).items():
            found[f"prefill_{resource}_{name}_s"] = value
    found |= _curve(known.position, pool, "prefill_position")
    return found | _network(known, pool, 1, "prefill_")


def _curve(curve: Curve, pool: Pool, name: str) -> Facts:
    """Slope per token, and caps with their knots, of each resource."""
    found: Facts = {}
    for i in range(MAX_KNOTS):
        is_there = i < len(curve.knots)
        found[f"{name}_knot_{i}_tokens"] = curve.knots[i] if is_there else 1.0
        cap = seconds(curve.caps[i] if is_there else {}, pool.gpu)
        for resource in RESOURCES:
            found[f"{name}_{resource}_cap_{i}_s"] = cap[resource]
    slope = seconds(curve.slope, pool.gpu)
    return found | {f"{name}_{resource}_slope_s": slope[resource] for resource in RESOURCES}


def _network(known: Coefficients, pool: Pool, tokens: int, prefix: str) -> Facts:
    latency, token = message_seconds(known.messages, pool.fabric)
    _, group = message_seconds(known.group_messages, pool.fabric)
    row_latency, row = message_seconds(known.row_messages, pool.fabric)
    rows = row * tokens if prefix == "" else 0.0
    return {
        f"{prefix}net_step_s": latency + row_latency,
        f"{prefix}net_token_s": token * tokens + rows,
        f"{prefix}net_group_s": group * tokens,
    }
