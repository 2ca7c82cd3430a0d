"""The fast path: a run on arrays, compiled, many decode steps between two events at a time.

It equals the reference to rounding. `unsupported` says which runs it leaves to the reference.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.base.errors import SimulationError
from dse.cost.step import GRAPH_MAX_SEQS, StepCost
from dse.cost.tally import Tally
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst, Static
from dse.sim._cache import is_compiled
from dse.sim.outcome import Outcome
from dse.sim.spec import PoolSpec, RunSpec
from dse.sim.totals import GAP_BINS, Totals
from dse.sim.traffic import Keys, Requests, content_keys

MAX_CELLS = 100_000_000
NO_SHARING = 1 << 60

# Compilation takes some 20 s of CPU, once per machine; the reference takes about this per output
# token. As with skis, it is bought when renting would have cost as much.
COMPILE_S = 15.0
REFERENCE_S_PER_TOKEN = 1e-5
_rented_s = 0.0


def pays(requests: Requests) -> bool:
    """Whether to use the fast path: it was compiled before, or this process has more to simulate
    than compilation costs. Both paths give the same results.
    """
    global _rented_s  # noqa: PLW0603 - says when to compile, and no result
    if is_compiled():
        return True
    _rented_s += REFERENCE_S_PER_TOKEN * float(requests.osl_tokens.sum())
    return _rented_s > COMPILE_S


def unsupported(spec: RunSpec, requests: Requests) -> str:
    """Why the reference must serve this run; empty if the fast path can."""
    for each in spec.pools:
        if not isinstance(each.scheduler, ChunkedPrefill | PrefillFirst | Static):
            return f"scheduler {type(each.scheduler).__name__}"
    if len({pool.scheduler.order_by for pool in spec.pools}) > 1:
        return "the pools rank waiting requests differently"
    if spec.router.kind not in ("round_robin", "least_loaded"):  # type: ignore[attr-defined]
        return "the router looks into the caches"
    if np.any((requests.session >= 0) & (requests.follows < 0)) and not np.any(
        requests.follows >= 0
    ):
        return "turns of a recorded session may overlap"
    if sum(p.n_replicas * p.dp for p in spec.pools) * _most_waiting(requests) > MAX_CELLS:
        return "too many ranks and requests for arrays"
    return ""


def run_fast(spec: RunSpec, requests: Requests) -> Outcome:
    """Simulate `requests`, all of which the engines accept."""
    from dse.sim import _run

    keys = _keys(spec.pools[0], requests)
    fixed = _fixed(spec, requests, keys)
    state = _state(spec, requests, keys)
    tallies = [Tally.empty(pool.cost.grid) for pool in spec.pools]
    first, last = spec.pools[0].cost, spec.pools[-1].cost
    _run.run(fixed, state, curves(first), tallies[0].arrays, curves(last), tallies[-1].arrays)
    done, n_done = state.rq, int(state.tot[0]["n_done"])
    if n_done != len(requests):
        lost = len(requests) - n_done
        raise SimulationError(f"{lost} of {len(requests)} requests never finished")
    return Outcome(
        asked_s=done["asked"],
        admitted_s=done["admitted_s"],
        first_token_s=done["first_s"],
        finish_s=done["finish_s"],
        n_preemptions=done["preempted"],
        hit_tokens=done["hit"],
        totals=tuple(
            _totals(state.tot[i], state.gaps[i], tally) for i, tally in enumerate(tallies)
        ),
    )


def _keys(pool: PoolSpec, requests: Requests) -> Keys:
    return content_keys(requests, pool.kv.block_tokens if pool.kv.shares else NO_SHARING)


def _totals(sums: Any, gaps: Any, tally: Tally) -> Totals:
    return Totals(
        tally=tally,
        n_steps=int(sums["n_steps"]),
        busy_s=float(sums["busy"]),
        host_s=float(sums["host"]),
        seqs_s=float(sums["seqs_s"]),
        kv_s=float(sums["kv_s"]),
        kv_peak=int(sums["kv_peak"]),
        n_decode_tokens=int(sums["n_decode"]),
        n_prefill_tokens=int(sums["n_prefill"]),
        gaps=gaps,
    )


def curves(cost: StepCost) -> Any:
    """The tables of a pool in few arrays."""
    from dse.sim._state import Curves

    t = cost.tables
    lines = [(t.token_x, t.token_z), (t.group_x, t.group_z), (t.head_x, t.head_z)]
    lines.append((t.draft_x, t.draft_z))
    longest, stages = max(len(x) for x, _ in lines), len(t.stage_count)
    xs, zs = np.zeros((4, longest)), np.zeros((4, stages, longest))
    for i, (x, z) in enumerate(lines):
        xs[i, : len(x)], zs[i, :, : len(x)] = x, z
    return Curves(
        n=np.array([len(x) for x, _ in lines]),
        x=xs,
        z=zs,
        seqs=t.decode_x,
        context=t.decode_y,
        chunk=t.prefill_x,
        decode=t.decode_z,
        prefill=t.prefill_z,
        stage_count=t.stage_count,
    )


def _rank_by(pool: PoolSpec, requests: Requests) -> Any:
    order_by = pool.scheduler.order_by
    if order_by == "shortest":
        return requests.isl_tokens.astype(np.int64)
    return requests.priority if order_by == "priority" else np.zeros(len(requests), dtype=np.int64)


def _successors(requests: Requests) -> Any:
    found = np.full(len(requests), -1, dtype=np.int64)
    later = np.flatnonzero(requests.follows >= 0)
    found[requests.follows[later]] = later
    return found


def _fixed(spec: RunSpec, requests: Requests, keys: Keys) -> Any:
    """What does not change, an entry a pool. Only the pool that prefills shares content."""
    from dse.sim._state import FIXED

    fixed = np.zeros(len(spec.pools), dtype=FIXED)
    target = replica = 0
    for i, pool in enumerate(spec.pools):
        values = _pool_values(spec, pool, requests, keys.n_keys if i == 0 else 0) | {
            "pool": i,
            "first_target": target,
            "first_replica": replica,
            "arrival_s": spec.pools[0].arrival_s,
            "hands_over": i + 1 < len(spec.pools),
        }
        for name, value in values.items():
            fixed[name][i] = value
        target, replica = target + pool.n_replicas * pool.dp, replica + pool.n_replicas
    return fixed


def _pool_values(spec: RunSpec, pool: PoolSpec, requests: Requests, n_keys: int) -> dict[str, Any]:
    scheduler, host, kv = pool.scheduler, pool.cost.host, pool.kv
    chunked = isinstance(scheduler, ChunkedPrefill)
    return {
        "n_targets": pool.n_replicas * pool.dp,
        "n_replicas": pool.n_replicas,
        "dp": pool.dp,
        "pp": pool.pp,
        "max_tokens": pool.limits.max_tokens,
        "max_seqs": pool.limits.max_seqs,
        "q_tokens": pool.limits.q_tokens,
        "n_units": kv.n_units,
        "block_tokens": kv.block_tokens,
        "n_keys": n_keys,
        "end": 2 * n_keys + 2,
        "n_windows": len(kv.curve.windows),
        "multiple": host.graph_batch_multiple,
        "graph_max": GRAPH_MAX_SEQS,
        "n_draft": spec.n_draft,
        "concurrency": requests.concurrency,
        "chunked": chunked,
        "decode_first": chunked,
        "empty_only": isinstance(scheduler, Static),
        "reserve": scheduler.reserve_prompt if isinstance(scheduler, ChunkedPrefill) else True,
        "least_loaded": not spec.router.is_stateless,
        "uniform": kv.is_uniform,
        "overlapped": host.overlapped,
        "answers": len(spec.pools) > 1
        or requests.concurrency > 0
        or bool(np.any(requests.follows >= 0)),
        "full_bytes": kv.curve.full_bytes_per_token,
        "fixed_bytes": kv.curve.fixed_bytes,
        "step_s": host.step_s,
        "request_s": host.request_s,
        "prefill_token_s": host.prefill_token_s,
        "launch_s": pool.cost.launch_s,
        "prefill_gap": host.prefill_gap,
        "acceptance": spec.acceptance,
        "seed": requests.seed,
    }


def _requests(spec: RunSpec, requests: Requests, keys: Keys) -> Any:
    from dse.sim._state import REQUEST

    found = np.zeros(len(requests), dtype=REQUEST)
    for name in ("asked", "admitted_s", "first_s", "last_s", "finish_s"):
        found[name] = np.nan
    found["isl"], found["osl"] = requests.isl_tokens, requests.osl_tokens
    found["rank_by"], found["successor"] = _rank_by(spec.pools[0], requests), _successors(requests)
    found["key_start"], found["key_count"] = keys.start, keys.count
    if len(spec.pools) > 1:
        lengths, which = np.unique(requests.isl_tokens, return_inverse=True)
        found["transfer_s"] = np.array([spec.transfer_s(each) for each in lengths.tolist()])[which]
    found["arrival_s"], found["think"] = requests.arrival_s, requests.think_s
    return found


def _most_waiting(requests: Requests) -> int:
    """Requests that may wait at once, at most: no more than a closed loop keeps in flight."""
    if requests.concurrency and not np.any(requests.follows >= 0):
        return min(requests.concurrency, len(requests))
    return len(requests)


def _state(spec: RunSpec, requests: Requests, keys: Keys) -> Any:
    from dse.sim import _state as types

    n, pools = len(requests), spec.pools
    t, e = sum(p.n_replicas * p.dp for p in pools), sum(p.n_replicas for p in pools)
    s = max(p.pp for p in pools)
    seats = min(max(p.limits.max_seqs for p in pools), n)
    flights = np.zeros((e, s), dtype=types.FLIGHT)
    flights["end_s"] = np.inf
    replicas = np.zeros(e, dtype=types.REPLICA)
    replicas["wake_s"] = np.inf
    return types.State(
        rq=_requests(spec, requests, keys),
        tg=np.zeros(t, dtype=types.TARGET),
        ts=np.zeros((t, s), dtype=types.PLACE),
        ch=np.zeros((t, s, seats), dtype=types.CHUNK),
        heap=np.zeros((t, _most_waiting(requests)), dtype=np.int64),
        nd=np.zeros((t, 2 * keys.n_keys + 3 if keys.n_keys else 1), dtype=types.NODE),
        rp=replicas,
        es=flights,
        due=np.zeros(n + 1, dtype=types.DUE),
        tot=np.zeros(len(pools), dtype=types.SUMS),
        gaps=np.zeros((len(pools), GAP_BINS), dtype=np.int64),
        residue=np.zeros((t, max(p.kv.block_tokens for p in pools)), dtype=np.int64),
        cell=np.zeros((t, max(len(p.cost.stages) for p in pools)), dtype=types.LINE),
        roots=np.flatnonzero(requests.follows < 0),
        keys=keys.flat,
        windows=_windows(pools),
    )


def _windows(pools: Sequence[PoolSpec]) -> Any:
    from dse.sim._state import WINDOW

    longest = max(len(pool.kv.curve.windows) for pool in pools)
    found = np.zeros((len(pools), longest), dtype=WINDOW)
    for i, pool in enumerate(pools):
        for j, window in enumerate(pool.kv.curve.windows):
            found[i, j] = window
    return found
