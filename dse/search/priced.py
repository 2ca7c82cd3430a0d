"""What a schedule takes on one deployment, from below and all but exactly."""

from dataclasses import dataclass

import numpy as np

from dse.cost.step import GRAPH_MAX_SEQS, RankLoad, StepCost
from dse.search.dominance import Flags
from dse.search.envelope import Array
from dse.search.offered import Offered
from dse.search.schedule import Schedule, Terms
from dse.serving.routers import RoundRobin
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst
from dse.sim.spec import PoolSpec, RunSpec


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Seconds of each request, and of the whole run."""

    ttft_s: Array
    e2e_s: Array
    duration_s: float


def terms_of(spec: RunSpec, concurrency: int, *, is_plain: bool) -> Terms | None:
    """What shapes the schedule of a deployment whose requests miss no step; None where steps depend
    on their times.
    """
    pool = spec.pools[0]
    fits = (
        concurrency > 0
        and is_plain
        and len(spec.pools) == 1
        and pool.n_replicas == 1
        and pool.pp == 1
        and pool.limits.q_tokens == 1
        and isinstance(spec.router, RoundRobin)
        and isinstance(pool.scheduler, ChunkedPrefill | PrefillFirst)
        and pool.scheduler.policy == "fcfs"
    )
    if not fits:
        return None
    limits = pool.limits
    return Terms(
        concurrency=concurrency,
        dp=pool.dp,
        budget=limits.max_tokens,
        seats=limits.max_seqs,
        missed=0,
        prefills_first=isinstance(pool.scheduler, PrefillFirst),
    )


def price(found: Schedule, pool: PoolSpec, longest_tokens: int) -> Latencies | None:
    """The latencies of a schedule; None where KV runs short, or a request reaches the engine before
    another step than the schedule says.
    """
    if not _has_room(found, pool, longest_tokens):
        return None
    seconds = row_seconds(found, pool)
    starts, ends = _times(found, seconds, pool.arrival_s)
    at = np.concatenate([ends, [0.0]])
    asked = at[found.asked]
    if pool.arrival_s > 0.0 and not _in_time(found, starts, ends, asked, pool.arrival_s):
        return None
    return Latencies(
        ttft_s=at[found.first] - asked,
        e2e_s=at[found.last] - asked,
        duration_s=float(ends[-1]),
    )


def likely_missed(pool: PoolSpec, offered: Offered) -> list[int]:
    """How many decode steps a request may miss on its way to the engine, the likeliest first."""
    if pool.arrival_s == 0.0:
        return [0]
    n = max(1, min(offered.concurrency // pool.dp, pool.limits.max_seqs))
    context = float(offered.isl.mean() + offered.osl.mean() / 2.0)
    step_s = pool.cost.seconds([RankLoad(n, n * context)] * pool.dp).occupancy_s
    likely = max(1, int(np.ceil(pool.arrival_s / step_s)))
    return [likely, likely + 1, *([likely - 1] if likely > 1 else [])]


def _times(found: Schedule, seconds: Array, arrival_s: float) -> tuple[Array, Array]:
    """When each row starts and ends; an idle engine starts when the request is there."""
    ends = np.empty_like(seconds)
    stops = [*found.idle[1:].tolist(), len(seconds)]
    for row, stop in zip(found.idle.tolist(), stops, strict=True):
        asked = found.asked[np.searchsorted(found.joined, row)]
        start = (ends[asked] if asked >= 0 else 0.0) + arrival_s
        ends[row:stop] = start + np.cumsum(seconds[row:stop])
    return ends - seconds, ends


def _in_time(found: Schedule, starts: Array, ends: Array, asked: Array, arrival_s: float) -> bool:
    """Whether each request that joins a busy engine gets there during the step before."""
    joins = ~np.isin(found.joined, found.idle)
    before = found.joined[joins] - 1
    arrived = asked[joins] + arrival_s
    margin = 1e-6 * arrival_s
    waits = found.idle[found.idle > 0]
    if (starts[waits] < ends[waits - 1] + margin).any():
        return False
    return bool(
        (arrived <= ends[before] - margin).all() and (arrived > starts[before] + margin).all()
    )


def _has_room(found: Schedule, pool: PoolSpec, longest_tokens: int) -> bool:
    kv = pool.kv
    if kv.is_uniform:
        units = found.held / kv.block_tokens + found.n_held
    else:
        units = found.n_held * kv.units_of(longest_tokens)
    return bool((units <= kv.n_units).all())


def row_seconds(found: Schedule, pool: PoolSpec) -> Array:
    """Seconds of each row: its fullest rank, its experts, its host.

    Where the fullest rank changes within a row, the fullest of the sums is a little less.
    """
    cost = pool.cost
    multiple = cost.host.graph_batch_multiple
    tokens = np.where(found.n_chunks > 0, found.n + found.new, padded(found.n, multiple))
    t = cost.tables
    group = _curve(tokens.sum(axis=1), t.group_x, t.group_z[0])
    fixed = _curve(tokens, t.token_x, t.token_z[0])
    fixed += _curve(found.n + found.n_chunks, t.head_x, t.head_z[0])
    fixed += _chunks(found, pool)
    longer = found.length - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        start = np.where(found.n > 0, found.context / np.maximum(found.n, 1.0), 0.0)
    ends = _decode(found.n, start, pool) + _decode(found.n, start + longer[:, None], pool)
    summed = ends / 2.0 * found.length[:, None]
    _across_knots(found, pool, start, summed)
    host = np.max(
        cost.host.step_s
        + cost.host.request_s * (found.n + found.n_chunks)
        + cost.host.prefill_token_s * found.new,
        axis=1,
    )
    whole = (fixed * found.length[:, None] + summed).max(axis=1) + group * found.length
    exposed = _exposed(cost, whole, host * found.length, found.new.sum(axis=1) > 0.0)
    total: Array = whole + exposed
    return total


def _exposed(cost: StepCost, gpu_s: Array, host_s: Array, prefills: Flags) -> Array:
    """What the host adds (as `dse.cost.host.exposed_seconds`)."""
    idle_s = np.where(prefills, cost.host.prefill_gap, 0.0) * gpu_s
    launch_s = np.where(prefills, cost.launch_s, 0.0)
    own_s = host_s if cost.host.overlapped else 0.0 * host_s
    excess = np.maximum(0.0, own_s + launch_s - gpu_s - idle_s)
    exposed: Array = idle_s + excess + (host_s - own_s)
    return exposed


def padded(n: Array, multiple: int) -> Array:
    """The CUDA-graph batch of a decode step of `n` requests (as `dse.cost.step.padded`)."""
    if multiple <= 1:
        return n
    rounded = np.ceil(n / multiple) * multiple
    small = np.where(n <= 2, n, np.where((n <= 4) & (multiple >= 4), 4.0, rounded))
    return np.where(n > GRAPH_MAX_SEQS, n, small)


def _curve(x: Array, xs: Array, ys: Array) -> Array:
    """`dse.cost.tables.curve` of an array."""
    cell = np.clip(np.searchsorted(xs, x, side="right") - 1, 0, len(xs) - 2)
    slope = np.diff(ys)[cell] / np.diff(xs)[cell]
    return np.where(x > 0, ys[cell] + (x - xs[cell]) * slope, 0.0)


def _sheet(x: Array, y: Array, grid: tuple[Array, Array], zs: Array) -> Array:
    """`dse.cost.tables.sheet` of arrays."""
    xs, ys = grid
    low = np.clip(np.searchsorted(xs, x, side="right") - 1, 0, len(xs) - 2)
    left = np.clip(np.searchsorted(ys, y, side="right") - 1, 0, len(ys) - 2)
    share = (x - xs[low]) / np.diff(xs)[low]
    at = zs[low, left] + share * (zs[low + 1, left] - zs[low, left])
    after = zs[low, left + 1] + share * (zs[low + 1, left + 1] - zs[low, left + 1])
    y = np.where(left == 0, np.maximum(y, ys[0]), y)
    found: Array = at + (y - ys[left]) * ((after - at) / np.diff(ys)[left])
    return found


def _decode(n: Array, context: Array, pool: PoolSpec) -> Array:
    t = pool.cost.tables
    found = _sheet(np.maximum(n, 1.0), context, (t.decode_x, t.decode_y), t.decode_z[0])
    return np.where(n > 0, found, 0.0)


def _chunks(found: Schedule, pool: PoolSpec) -> Array:
    """Prompt attention by row and rank: chunks share one launch."""
    t = pool.cost.tables
    least = t.prefill_z[0][0, 0]
    seconds = np.where(found.n_chunks > 0, least, 0.0)
    row, rank, new, cached = found.chunks.T
    each = _sheet(
        new.astype(float), cached.astype(float), (t.prefill_x, t.prefill_y), t.prefill_z[0]
    )
    np.add.at(seconds, (row, rank), each - least)
    return seconds


def _across_knots(found: Schedule, pool: PoolSpec, start: Array, summed: Array) -> None:
    """Sum step by step where a row's mean context passes a knot of the table."""
    knots = pool.cost.tables.decode_y
    stop = start + found.length[:, None] - 1.0
    crossed = np.searchsorted(knots, start, side="right") != np.searchsorted(knots, stop)
    for row, rank in np.argwhere(crossed & (found.n > 0) & (found.length[:, None] > 2)):
        contexts = start[row, rank] + np.arange(found.length[row])
        n = np.full(len(contexts), found.n[row, rank])
        summed[row, rank] = _decode(n, contexts, pool).sum()
