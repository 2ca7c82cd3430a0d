"""What a point was asked with, as limits of the engine: requests at once, and their length."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dse.serving.deployment import Deployment, Pool
from dse.walls.describe import describe

__all__ = ["Longest", "longest", "with_batch"]

ROOM_SHARE = 0.10
LEAST_ROOM_TOKENS = 512
"""Room for a chat template and for prompts that are a little longer than those simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Longest:
    """Tokens of the longest request that the engine is to take, and why so many."""

    tokens: int
    why: str


def with_batch(deployment: Deployment, row: Mapping[str, Any]) -> tuple[Deployment, str]:
    """`deployment` whose decoding ranks run at most their share of the point's batch, and a remark.

    A closed loop of `concurrency` keeps `batch` requests in flight in each replica that decodes; a
    rank's share is rounded up. Where a rate was offered, the engine's own limit was simulated.
    """
    *before, pool = deployment.pools
    batch = row.get("batch")
    if batch is None and row.get("concurrency") is not None:
        batch = -(-row["concurrency"] // pool.n_replicas)
    if batch is None:
        seqs = pool.engine.max_num_seqs
        return deployment, f"load: simulated under a rate, at most {seqs:,} requests in a rank"
    limit = min(pool.engine.max_num_seqs, -(-batch // pool.layout.dp))
    capped: Pool = replace(pool, engine=replace(pool.engine, max_num_seqs=limit))
    ranks = f", {limit:,} in each of {pool.layout.dp} DP ranks" if pool.layout.dp > 1 else ""
    remark = f"load: simulated with {batch:,} requests in flight in each decoding replica{ranks}"
    return replace(deployment, pools=(*before, capped)), remark


def longest(row: Mapping[str, Any], study: str | None, deployment: Deployment) -> Longest:
    """The longest request that the engine is to take for a point of `study` (its resolved text).

    The longest that the workload draws, and room for what it leaves out: a tenth, at least 512
    tokens, as far as model and KV pool go. The whole context where a workload has no longest.
    """
    nominal = int(row["isl_tokens"] + row["osl_tokens"])
    most = deployment.model.max_context_tokens
    factor = 1.0 if study is None else _greatest(json.loads(study))
    if factor is None:
        wanted, what = most, "the workload has no longest request: the model's whole context"
    else:
        drawn = round(nominal * factor)
        room = max(LEAST_ROOM_TOKENS, round(ROOM_SHARE * drawn))
        wanted = max(drawn, min(drawn + room, most))
        what = f"at most {drawn:,} tokens were simulated, {wanted - drawn:,} are room"
    held = _held(deployment, nominal, wanted)
    if held < wanted:
        return Longest(tokens=held, why=f"length: {held:,} tokens, all that the KV pool holds")
    why = f"length: {what} for chat template and longer prompts; the model takes {most:,}"
    return Longest(tokens=wanted, why=f"{why}; --context sets another")


def _held(deployment: Deployment, least: int, most: int) -> int:
    """The longest request, from `least` to `most` tokens, that has room in the KV pool."""
    if describe(deployment, context_tokens=most)["legal"]:
        return most
    while most - least > 1:
        middle = (least + most) // 2
        if describe(deployment, context_tokens=middle)["legal"]:
            least = middle
        else:
            most = middle
    return least


def _greatest(study: Mapping[str, Any]) -> float | None:
    """The greatest length as a multiple of the context's; None where there is no greatest."""
    workload, load = study.get("workload") or {}, study.get("load")
    lengths = workload.get("lengths", "constant")
    if workload.get("sessions") or (isinstance(load, Mapping) and "trace" in load):
        return None
    if isinstance(lengths, Mapping):
        return float(lengths["uniform"][1]) if "uniform" in lengths else None
    return 1.0
