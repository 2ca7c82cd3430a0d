"""The fast path: a run on arrays, compiled, many decode steps between two events at a time.

It equals the reference to rounding. `unsupported` says which runs it leaves to the reference.
"""

import sys
from typing import Any

import numpy as np

from dse.base.errors import SimulationError
from dse.cost.step import GRAPH_MAX_SEQS, StepCost
from dse.cost.tally import Tally
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst, Static
from dse.sim._cache import is_filled
from dse.sim.outcome import Outcome
from dse.sim.spec import PoolSpec, RunSpec
from dse.sim.totals import GAP_BINS, Totals
from dse.sim.traffic import Keys, Requests, content_keys

MAX_CELLS = 40_000_000
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
    if "dse.sim._run" in sys.modules or is_filled():
        return True
    _rented_s += REFERENCE_S_PER_TOKEN * float(requests.osl_tokens.sum())
    return _rented_s > COMPILE_S


def unsupported(spec: RunSpec, requests: Requests) -> str:
    """Why the reference must serve this run; empty if the fast path can."""
    pool = spec.pools[0]
    if len(spec.pools) > 1:
        return "prefill and decode stand apart"
    if not isinstance(pool.scheduler, ChunkedPrefill | PrefillFirst | Static):
        return f"scheduler {type(pool.scheduler).__name__}"
    if spec.router.kind not in ("round_robin", "least_loaded"):  # type: ignore[attr-defined]
        return "the router looks into the caches"
    if np.any((requests.session >= 0) & (requests.follows < 0)) and not np.any(
        requests.follows >= 0
    ):
        return "turns of a recorded session may overlap"
    if pool.n_replicas * pool.dp * len(requests) > MAX_CELLS:
        return "too many ranks and requests for arrays"
    return ""


def run_fast(spec: RunSpec, requests: Requests) -> Outcome:
    """Simulate `requests`, all of which the engines accept."""
    from dse.sim import _run

    pool = spec.pools[0]
    keys = content_keys(requests, pool.kv.block_tokens if pool.kv.shares else NO_SHARING)
    fixed = _fixed(spec, pool, requests, keys)
    state = _state(fixed, pool, requests, keys)
    tally = Tally.empty(pool.cost.grid)
    _run.run(fixed, state, _curves(pool.cost), tally.arrays)
    sums, done = state.tot[0], state.rq
    if sums["n_done"] != len(requests):
        lost = len(requests) - int(sums["n_done"])
        raise SimulationError(f"{lost} of {len(requests)} requests never finished")
    return Outcome(
        asked_s=done["asked"],
        admitted_s=done["admitted_s"],
        first_token_s=done["first_s"],
        finish_s=done["finish_s"],
        n_preemptions=done["preempted"],
        hit_tokens=done["hit"],
        totals=(_totals(sums, state.gaps, tally),),
    )


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


def _curves(cost: StepCost) -> Any:
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


def _fixed(spec: RunSpec, pool: PoolSpec, requests: Requests, keys: Keys) -> Any:
    from dse.sim._state import FIXED

    scheduler, host, kv = pool.scheduler, pool.cost.host, pool.kv
    chunked = isinstance(scheduler, ChunkedPrefill)
    values = {
        "n_targets": pool.n_replicas * pool.dp,
        "n_replicas": pool.n_replicas,
        "dp": pool.dp,
        "pp": pool.pp,
        "max_tokens": pool.limits.max_tokens,
        "max_seqs": pool.limits.max_seqs,
        "q_tokens": pool.limits.q_tokens,
        "n_units": kv.n_units,
        "block_tokens": kv.block_tokens,
        "n_keys": keys.n_keys,
        "end": 2 * keys.n_keys + 2,
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
        "answers": requests.concurrency > 0 or bool(np.any(requests.follows >= 0)),
        "full_bytes": kv.curve.full_bytes_per_token,
        "fixed_bytes": kv.curve.fixed_bytes,
        "step_s": host.step_s,
        "request_s": host.request_s,
        "prefill_token_s": host.prefill_token_s,
        "arrival_s": pool.arrival_s,
        "launch_s": pool.cost.launch_s,
        "prefill_gap": host.prefill_gap,
        "acceptance": spec.acceptance,
        "seed": requests.seed,
    }
    fixed = np.zeros(1, dtype=FIXED)
    for name, value in values.items():
        fixed[name] = value
    return fixed


def _requests(pool: PoolSpec, requests: Requests, keys: Keys) -> Any:
    from dse.sim._state import REQUEST

    found = np.zeros(len(requests), dtype=REQUEST)
    for name in ("asked", "admitted_s", "first_s", "last_s", "finish_s"):
        found[name] = np.nan
    found["isl"], found["osl"] = requests.isl_tokens, requests.osl_tokens
    found["rank_by"], found["successor"] = _rank_by(pool, requests), _successors(requests)
    found["key_start"], found["key_count"] = keys.start, keys.count
    found["arrival_s"], found["think"] = requests.arrival_s, requests.think_s
    return found


def _state(fixed: Any, pool: PoolSpec, requests: Requests, keys: Keys) -> Any:
    from dse.sim import _state as types

    f, n = fixed[0], len(requests)
    t, s, e = int(f["n_targets"]), pool.pp, pool.n_replicas
    nodes = int(f["end"]) + 1 if keys.n_keys else 1
    stages = len(pool.cost.stages)
    flights = np.zeros((e, s), dtype=types.FLIGHT)
    flights["end_s"] = np.inf
    replicas = np.zeros(e, dtype=types.REPLICA)
    replicas["wake_s"] = np.inf
    return types.State(
        rq=_requests(pool, requests, keys),
        tg=np.zeros(t, dtype=types.TARGET),
        ts=np.zeros((t, s), dtype=types.PLACE),
        ch=np.zeros((t, s, min(pool.limits.max_seqs, n)), dtype=types.CHUNK),
        heap=np.zeros((t, n), dtype=np.int64),
        nd=np.zeros((t, nodes), dtype=types.NODE),
        rp=replicas,
        es=flights,
        due=np.zeros(n + 1, dtype=types.DUE),
        tot=np.zeros(1, dtype=types.SUMS),
        gaps=np.zeros(GAP_BINS, dtype=np.int64),
        residue=np.zeros((t, pool.kv.block_tokens), dtype=np.int64),
        cell=np.zeros((t, stages), dtype=types.LINE),
        roots=np.flatnonzero(requests.follows < 0),
        keys=keys.flat,
        windows=np.array(list(pool.kv.curve.windows), dtype=types.WINDOW),
    )
