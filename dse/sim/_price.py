"""Compiled pricing: `StepCost.seconds` and `Tally.add`, in the same order of operations."""

from typing import Any

from dse.cost import tables
from dse.cost.tally import DRAFT, GROUP, HEAD, TOKEN, TallyArrays
from dse.sim._jit import jit
from dse.sim._state import Curves, State

curve = jit(tables.curve)
sheet = jit(tables.sheet)
cell = jit(tables.cell)


@jit
def read(tb: Curves, i: int, stage: int, x: float) -> float:
    """Look up one-dimensional table `i`."""
    n = tb.n[i]
    return float(curve(x, tb.x[i, :n], tb.z[i, stage, :n]))


@jit
def count(tb: Curves, ty: TallyArrays, i: int, x: int, times: int) -> None:
    """Count `times` lookups of one-dimensional table `i`."""
    if x <= 0:
        return
    at = cell(x, tb.x[i, : tb.n[i]])
    ty.line_n[i, at] += times
    ty.line_x[i, at] += times * x


@jit
def computed_tokens(f: Any, n_decode: int, new: int, n_chunks: int) -> int:
    """Tokens that a rank computes, padding included."""
    if n_chunks > 0:
        return int(n_decode * f.q_tokens + new)
    padded = n_decode
    if 2 < n_decode <= f.graph_max and f.multiple > 1:
        padded = -(-n_decode // f.multiple) * f.multiple
        if n_decode <= 4 and f.multiple >= 4:
            padded = 4
    return int(padded * f.q_tokens)


@jit
def rank_seconds(f: Any, st: State, tb: Curves, stage: int, t: int, s: int) -> float:
    """Seconds of one rank's share of a step on one stage; its sums stand in `scratch[t]`."""
    n_decode, context = st.tg[t].n_decode, st.tg[t].context
    new, n_chunks = st.tg[t].new, st.tg[t].n_chunks
    m = computed_tokens(f, n_decode, new, n_chunks)
    found = read(tb, TOKEN, stage, m)
    found += read(tb, HEAD, stage, n_decode * f.q_tokens + n_chunks)
    if n_decode > 0:
        mean = context / n_decode
        found += sheet(n_decode, mean, tb.seqs, tb.context, tb.decode[stage])
        found += read(tb, DRAFT, stage, n_decode)
    if n_chunks > 0:
        z = tb.prefill[stage]
        least = z[0, 0]
        found += least
        for i in range(st.ts[t, s].chunk_n):
            if not st.ch[t, s, i].decode:
                q, cached = st.ch[t, s, i].new, st.ch[t, s, i].context
                found += sheet(q, cached, tb.chunk, tb.context, z) - least
    return found


@jit
def host_of(f: Any, st: State, low: int) -> float:
    """Seconds of the host for the busiest of a replica's ranks."""
    most = 0.0
    for t in range(low, low + f.dp):
        n_requests = st.tg[t].n_decode + st.tg[t].n_chunks
        spent = f.step_s + f.request_s * n_requests + f.prefill_token_s * st.tg[t].new
        most = max(most, spent)
    return most


@jit
def exposed(f: Any, gpu_s: float, host_s: float, launch_s: float, gap: float) -> float:
    """What the host adds to a step."""
    idle_s = gap * gpu_s
    busy_s = gpu_s + idle_s
    if f.overlapped:
        return idle_s + max(0.0, host_s + launch_s - busy_s)
    return idle_s + host_s + max(0.0, launch_s - busy_s)


@jit
def step_seconds(
    f: Any, st: State, tb: Curves, low: int, s: int
) -> tuple[float, float, float, int]:
    """Occupancy, latency, host seconds and expert-group tokens of a step of ranks `low` on."""
    m_group, launch_s, gap = 0, 0.0, 0.0
    for t in range(low, low + f.dp):
        n_decode, new = st.tg[t].n_decode, st.tg[t].new
        if st.tg[t].n_chunks > 0:
            launch_s, gap = f.launch_s, f.prefill_gap
        m_group += computed_tokens(f, n_decode, new, st.tg[t].n_chunks)
    slowest, total = 0.0, 0.0
    for stage in range(len(tb.stage_count)):
        local = rank_seconds(f, st, tb, stage, low, s)
        for t in range(low + 1, low + f.dp):
            local = max(local, rank_seconds(f, st, tb, stage, t, s))
        local += read(tb, GROUP, stage, m_group)
        slowest = max(slowest, local)
        total += tb.stage_count[stage] * local
    added = exposed(f, slowest, host_of(f, st, low), launch_s, gap)
    return slowest + added, total + added, added, m_group


@jit
def count_chunk(tb: Curves, ty: TallyArrays, new: int, cached: int, times: int) -> None:
    """Count `times` lookups of a prompt chunk."""
    cached = max(cached, 1)
    i, j = cell(new, tb.chunk), cell(cached, tb.context)
    ty.prefill[i, j, 0] += times
    ty.prefill[i, j, 1] += times * new
    ty.prefill[i, j, 2] += times * cached
    ty.prefill[i, j, 3] += times * new * cached


@jit
def count_rank(f: Any, st: State, tb: Curves, ty: TallyArrays, t: int, s: int) -> None:
    """Count the lookups of one rank's step."""
    n_decode, context = st.tg[t].n_decode, st.tg[t].context
    new, n_chunks = st.tg[t].new, st.tg[t].n_chunks
    count(tb, ty, TOKEN, computed_tokens(f, n_decode, new, n_chunks), 1)
    count(tb, ty, HEAD, n_decode * f.q_tokens + n_chunks, 1)
    if n_decode > 0:
        count(tb, ty, DRAFT, n_decode, 1)
        at = cell(context / n_decode, tb.context)
        ty.decode_n[n_decode, at] += 1
        ty.decode_c[n_decode, at] += context
    if n_chunks > 0:
        for i in range(st.ts[t, s].chunk_n):
            if not st.ch[t, s, i].decode:
                count_chunk(tb, ty, st.ch[t, s, i].new, st.ch[t, s, i].context, 1)
        count_chunk(tb, ty, 1, 1, 1 - n_chunks)
