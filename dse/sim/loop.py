"""When each request of a closed loop has its first and its last token, and nothing else.

Where all requests in flight have room, and who comes next follows from order alone, a run needs no
blocks, queues of priorities or draws; and who asks for latencies needs no energy, gaps between
tokens or utilisation. Such a run takes a small part of the time of `simulate`, to whose latencies
it is equal but for rounding; any other is refused.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.cost.memo import Memo
from dse.cost.step import GRAPH_MAX_SEQS, StepCost
from dse.cost.tables import Array
from dse.serving.routers import LeastLoaded, RoundRobin
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst
from dse.sim.fast import curves
from dse.sim.spec import RunSpec

_FIXED = np.dtype(
    [(name, "i8") for name in (
        "n_targets", "n_replicas", "dp", "pp", "max_tokens", "max_seqs", "q_tokens", "n_units",
        "units_of_longest", "block_tokens", "multiple", "graph_max", "concurrency", "pool",
        "first_target", "first_replica",
    )]
    + [(name, "?") for name in (
        "chunked", "uniform", "overlapped", "hands_over", "least_loaded",
    )]
    + [(name, "f8") for name in (
        "step_s", "request_s", "prefill_token_s", "arrival_s", "launch_s", "prefill_gap",
    )],
    align=True,
)  # fmt: skip
_REQUEST = np.dtype(
    [(name, "i8") for name in ("isl", "osl", "cached", "after")]
    + [(name, "f8") for name in ("asked", "first_s", "finish_s", "transfer_s")]
)
_RANK = np.dtype([(name, "i8") for name in ("head", "tail", "n_waiting", "context")])
_SLOT = np.dtype(
    [(name, "i8") for name in (
        "partial", "done", "done_last", "n_running", "n_decode", "clock", "base", "new",
        "context", "n_chunks", "n_prompts", "prompts",
    )]
)  # fmt: skip
_REPLICA = np.dtype([("free_s", "f8"), ("wake_s", "f8"), ("next_slot", "i8"), ("dirty", "i8")])
_FLIGHT = np.dtype([("end_s", "f8"), ("begun", "i8"), ("steps", "i8")])
_DUE = np.dtype([("time", "f8"), ("seq", "i8"), ("request", "i8"), ("pool", "i8")])
_SUMS = np.dtype(
    [(name, "i8") for name in (
        "n_routed", "n_due", "n_seq", "n_begun", "next_root", "n_done", "is_open",
    )]
)  # fmt: skip
_CELL = np.dtype([(n, "f8") for n in ("prompts_s", "rest", "at", "slope", "start", "end")])
# Entries of the calendars of last tokens, at most.
_MOST_ENTRIES = 40_000_000


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Seconds of each request, and of the whole run."""

    ttft_s: Array
    e2e_s: Array
    duration_s: float


def is_simple(spec: RunSpec) -> bool:
    """Whether who comes next needs no caches, priorities or draws to know."""
    return (
        isinstance(spec.router, LeastLoaded | RoundRobin)
        and spec.n_draft == 0
        and all(pool.limits.q_tokens == 1 for pool in spec.pools)
        and all(isinstance(pool.scheduler, ChunkedPrefill | PrefillFirst) for pool in spec.pools)
        and all(pool.scheduler.order_by == "fcfs" for pool in spec.pools)
    )


def closed_loop(spec: RunSpec, isl: Array, osl: Array, concurrency: int) -> Latencies | None:
    """The latencies of requests of `isl` prompt and `osl` output tokens, in order, of which
    `concurrency` are in flight; None where KV may run short, or rounding decides what is first.

    `spec` is simple, and its engines accept the requests.
    """
    from dse.sim import _loop
    from dse.sim._loop_plan import Loop

    n, pools = len(isl), spec.pools
    n_slots = max(pool.pp for pool in pools)
    n_ranks = sum(pool.n_replicas * pool.dp for pool in pools)
    width = int(osl.max())
    if n_ranks * n_slots * width > _MOST_ENTRIES:
        return None
    requests = _requests(spec, isl, osl)
    replicas = np.zeros(sum(pool.n_replicas for pool in pools), dtype=_REPLICA)
    replicas["wake_s"] = np.inf
    slots = np.zeros((n_ranks, n_slots), dtype=_SLOT)
    slots["partial"] = slots["done"] = -1
    flights = np.zeros((len(replicas), n_slots), dtype=_FLIGHT)
    flights["end_s"] = np.inf
    state = Loop(
        rq=requests,
        tg=np.zeros(n_ranks, dtype=_RANK),
        ts=slots,
        ends=np.full((n_ranks, n_slots, width), -1, dtype=np.int64),
        rp=replicas,
        es=flights,
        due=np.zeros(n + 1, dtype=_DUE),
        tot=np.zeros(len(pools), dtype=_SUMS),
        cell=np.zeros((n_ranks, max(len(p.cost.stages) for p in pools)), dtype=_CELL),
    )
    longest = int((isl + osl).max())
    first, last = pools[0].cost, pools[-1].cost
    if not _loop.run(_fixed(spec, concurrency, longest), state, _read(first), _read(last)):
        return None
    asked = requests["asked"]
    return Latencies(
        ttft_s=requests["first_s"] - asked,
        e2e_s=requests["finish_s"] - asked,
        duration_s=float(requests["finish_s"].max()),
    )


_CURVES: Memo[Any] = Memo(1024)


def _read(cost: StepCost) -> Any:
    """The tables of a pool, which many runs share."""
    return _CURVES.of((cost,), (), lambda: curves(cost))


def _requests(spec: RunSpec, isl: Array, osl: Array) -> Any:
    found = np.zeros(len(isl), dtype=_REQUEST)
    found["isl"], found["osl"] = isl, osl
    if len(spec.pools) > 1:
        found["transfer_s"] = [spec.transfer_s(tokens) for tokens in found["isl"].tolist()]
    return found


def _fixed(spec: RunSpec, concurrency: int, longest: int) -> Any:
    """What does not change, an entry a pool."""
    pools = spec.pools
    fixed = np.zeros(len(pools), dtype=_FIXED)
    target = replica = 0
    for i, pool in enumerate(pools):
        host, kv = pool.cost.host, pool.kv
        values = {
            "n_targets": pool.n_replicas * pool.dp,
            "n_replicas": pool.n_replicas,
            "dp": pool.dp,
            "pp": pool.pp,
            "max_tokens": pool.limits.max_tokens,
            "max_seqs": pool.limits.max_seqs,
            "q_tokens": 1,
            "n_units": kv.n_units,
            "units_of_longest": kv.units_of(longest),
            "block_tokens": kv.block_tokens,
            "multiple": host.graph_batch_multiple,
            "graph_max": GRAPH_MAX_SEQS,
            "concurrency": concurrency,
            "pool": i,
            "first_target": target,
            "first_replica": replica,
            "chunked": isinstance(pool.scheduler, ChunkedPrefill),
            "uniform": kv.is_uniform,
            "overlapped": host.overlapped,
            "hands_over": i + 1 < len(pools),
            "least_loaded": not spec.router.is_stateless,
            "step_s": host.step_s,
            "request_s": host.request_s,
            "prefill_token_s": host.prefill_token_s,
            "arrival_s": pools[0].arrival_s,
            "launch_s": pool.cost.launch_s,
            "prefill_gap": host.prefill_gap,
        }
        for name, value in values.items():
            fixed[name][i] = value
        target, replica = target + pool.n_replicas * pool.dp, replica + pool.n_replicas
    return fixed
