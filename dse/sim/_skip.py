"""Compiled leaps: while a batch only decodes, a step is its sums one token on.

Between two events the members of the batch stay, so `Σ context` grows by their number each step,
blocks are asked for by those whose context fills one, and the decode table is read along one row.
Each step is still priced and timed by itself, so that the result is the step-by-step one.
"""

import math
from typing import Any

from dse.cost.tally import DRAFT, GROUP, HEAD, TOKEN, TallyArrays
from dse.sim._jit import inline, jit
from dse.sim._kv import publish, take, units_of
from dse.sim._price import cell, computed_tokens, count, exposed, host_of, read
from dse.sim._state import Curves, State

# As in `dse.sim.totals`.
GAP_BASE, GAP_BINS = (1023 - 20) << 8, 32 << 8
NOBODY = 1 << 60


@jit
def first_rank(f: Any, e: int) -> int:
    """The first rank of a replica."""
    return int(f.first_target + (e - f.first_replica) * f.dp)


@inline
def add_gap(f: Any, st: State, seconds: float, times: int) -> None:
    """Count gaps between tokens (`totals.gap_bin`); the last bin and its edges are kept, since a
    gap is mostly like the one before.
    """
    tot = st.tot[f.pool]
    if not tot.gap_low <= seconds < tot.gap_high:
        if seconds <= 0.0:
            st.gaps[f.pool, 0] += times
            return
        mantissa, exponent = math.frexp(seconds)
        part = int((mantissa * 2.0 - 1.0) * 256.0)
        index = ((exponent + 1022) << 8) + part - GAP_BASE
        tot.gap_bin = min(max(index, 0), GAP_BINS - 1)
        tot.gap_low = math.ldexp(0.5 + part / 512.0, exponent)
        tot.gap_high = math.ldexp(0.5 + (part + 1) / 512.0, exponent)
    st.gaps[f.pool, tot.gap_bin] += times


@jit
def enter_cell(st: State, tb: Curves, t: int, y: float) -> None:
    """Find the context cell of `y` and its line on every stage."""
    left = cell(y, tb.context)
    row, share = st.tg[t].row, st.tg[t].share
    st.tg[t].left = left
    for stage in range(len(tb.stage_count)):
        z = tb.decode[stage]
        at = z[row, left] + share * (z[row + 1, left] - z[row, left])
        after = z[row, left + 1] + share * (z[row + 1, left + 1] - z[row, left + 1])
        st.cell[t, stage].at = at
        st.cell[t, stage].slope = (after - at) / (tb.context[left + 1] - tb.context[left])


@jit
def flush_cell(st: State, ty: TallyArrays, t: int) -> None:
    """Count the lookups made in the present cell."""
    n, left = st.tg[t].n_decode, st.tg[t].left
    ty.decode_n[n, left] += st.tg[t].lookups
    ty.decode_c[n, left] += st.tg[t].lookup_sum
    st.tg[t].lookups = 0
    st.tg[t].lookup_sum = 0


@inline
def residue_of(f: Any, st: State, r: int) -> int:
    """Context of a request modulo the block, without a division where blocks are counted."""
    computed = st.rq[r].computed
    if f.uniform:
        over = computed - (st.rq[r].held - 1) * f.block_tokens
        return 0 if over == f.block_tokens else int(over)
    return int(computed % f.block_tokens)


@jit
def prepare(f: Any, st: State, tb: Curves, low: int) -> int:
    """Sum up the batch of each rank; returns the steps until some request has its last token,
    0 where none runs.
    """
    least = NOBODY
    for t in range(low, low + f.dp):
        n, context = st.ts[t, 0].run_n, 0
        for i in range(f.block_tokens):
            st.residue[t, i] = 0
        for i in range(n):
            r = st.ch[t, 0, i].running
            context += st.rq[r].computed + 1
            least = min(least, st.rq[r].osl - st.rq[r].generated)
            st.residue[t, residue_of(f, st, r)] += 1
        st.tg[t].n_decode = n
        st.tg[t].context = context
        st.tg[t].new = 0
        st.tg[t].n_chunks = 0
        m = computed_tokens(f, n, 0, 0)
        for stage in range(len(tb.stage_count)):
            base = read(tb, TOKEN, stage, m)
            st.cell[t, stage].rest = base + read(tb, HEAD, stage, n)
        if n > 0:
            row = cell(n, tb.seqs)
            st.tg[t].row = row
            st.tg[t].share = (n - tb.seqs[row]) / (tb.seqs[row + 1] - tb.seqs[row])
            st.tg[t].lookups = st.tg[t].lookup_sum = 0
            enter_cell(st, tb, t, context / n)
    return 0 if least == NOBODY else int(least)


@jit
def group_tokens(f: Any, st: State, low: int) -> int:
    """Tokens of the expert group in a decode step, padding included."""
    total = 0
    for t in range(low, low + f.dp):
        total += computed_tokens(f, st.tg[t].n_decode, 0, 0)
    return total


@jit
def units_needed(f: Any, st: State, t: int, full: int, done: int) -> int:
    """Units that the next step, `done` steps into the leap, asks of a rank: one for each context
    whose residue is `full`, a block's end.
    """
    if f.uniform or st.residue[t, full] == 0:
        return int(st.residue[t, full])
    needed = 0
    for i in range(st.ts[t, 0].run_n):
        computed = st.rq[st.ch[t, 0, i].running].computed + done
        if computed % f.block_tokens == 0:
            needed += units_of(f, st, computed + 1) - units_of(f, st, computed)
    return needed


@jit
def decode_seconds(st: State, tb: Curves, ty: TallyArrays, t: int, stage: int) -> float:
    """Seconds of one rank on one stage at its present context."""
    n = st.tg[t].n_decode
    if n == 0:
        return float(st.cell[t, stage].rest)
    y, ys = st.tg[t].context / n, tb.context
    left = st.tg[t].left
    if stage == 0:
        if y >= ys[left + 1] and left < len(ys) - 2:
            flush_cell(st, ty, t)
            enter_cell(st, tb, t, y)
            left = st.tg[t].left
        st.tg[t].lookups += 1
        st.tg[t].lookup_sum += st.tg[t].context
    at = st.cell[t, stage].at
    return float(st.cell[t, stage].rest + (at + (y - ys[left]) * st.cell[t, stage].slope))


@jit
def find_room(f: Any, st: State, low: int, full: int, done: int) -> bool:
    """Give every rank the units that the next step asks for; False, and nothing given, if one has
    too few. What is given in a leap is summed in `new`.
    """
    for t in range(low, low + f.dp):
        needed = units_needed(f, st, t, full, done)
        if needed > st.tg[t].free - st.tg[t].new:
            return False
        st.tg[t].n_chunks = needed
    for t in range(low, low + f.dp):
        st.tg[t].new += st.tg[t].n_chunks
    return True


@jit
def one_step(
    f: Any, st: State, tb: Curves, ty: TallyArrays, low: int, group: float, host_s: float
) -> float:
    """Price one step of the leap on the only stage and add it to the sums; returns its seconds."""
    local = decode_seconds(st, tb, ty, low, 0)
    for t in range(low + 1, low + f.dp):
        local = max(local, decode_seconds(st, tb, ty, t, 0))
    local += group
    added = exposed(f, local, host_s, 0.0, 0.0)
    seconds = local + added
    for t in range(low, low + f.dp):
        used = f.n_units - st.tg[t].free + st.tg[t].new
        st.tot[f.pool].seqs_s += st.tg[t].n_decode * seconds
        st.tot[f.pool].kv_s += used * seconds
        st.tot[f.pool].kv_peak = max(st.tot[f.pool].kv_peak, used)
        st.tg[t].context += st.tg[t].n_decode
    st.tot[f.pool].busy += seconds
    st.tot[f.pool].host += added
    return seconds


@jit
def settle(
    f: Any, st: State, tb: Curves, ty: TallyArrays, low: int, steps: int, now: float
) -> None:
    """Bring the requests to where the sums are."""
    for t in range(low, low + f.dp):
        n, units = st.ts[t, 0].run_n, 0
        for i in range(n):
            r = st.ch[t, 0, i].running
            st.rq[r].computed += steps
            st.rq[r].generated += steps
            st.rq[r].last_s = now
            if not f.uniform or st.rq[r].computed > st.rq[r].held * f.block_tokens:
                held = units_of(f, st, st.rq[r].computed)
                units += held - st.rq[r].held
                st.rq[r].held = held
        take(f, st, t, units)
        for i in range(n):
            publish(f, st, t, st.ch[t, 0, i].running)
        st.tot[f.pool].n_decode += n * steps
        if n > 0:
            flush_cell(st, ty, t)
            count(tb, ty, DRAFT, n, steps)
        count(tb, ty, TOKEN, computed_tokens(f, n, 0, 0), steps)
        count(tb, ty, HEAD, n, steps)


@jit
def steps_together(
    f: Any, st: State, tb: Curves, ty: TallyArrays, low: int, now: float, until: float, most: int
) -> tuple[int, float]:
    """Up to `most` steps of ranks in lock-step, begun before `until`; returns how many, and when
    the last ends.
    """
    group = read(tb, GROUP, 0, group_tokens(f, st, low))
    host_s, seqs, steps, full = host_of(f, st, low), 0, 0, 0
    for t in range(low, low + f.dp):
        seqs += st.tg[t].n_decode
    while steps < most and now < until and find_room(f, st, low, full, steps):
        full = (full if full > 0 else f.block_tokens) - 1
        ends = now + one_step(f, st, tb, ty, low, group, host_s)
        add_gap(f, st, ends - now, seqs)
        now = ends
        steps += 1
    return steps, now


@jit
def steps_alone(
    f: Any, st: State, tb: Curves, ty: TallyArrays, t: int, now: float, until: float, most: int
) -> tuple[int, float]:
    """The same for a single rank that counts blocks: the common case, with its sums at hand."""
    group, host_s = read(tb, GROUP, 0, group_tokens(f, st, t)), host_of(f, st, t)
    n, context, ys = st.tg[t].n_decode, st.tg[t].context, tb.context
    free, used = st.tg[t].free, f.n_units - st.tg[t].free
    seqs_s, kv_s = st.tot[f.pool].seqs_s, st.tot[f.pool].kv_s
    busy, host = st.tot[f.pool].busy, st.tot[f.pool].host
    rest, at, slope = st.cell[t, 0].rest, st.cell[t, 0].at, st.cell[t, 0].slope
    left, looked, looked_sum = st.tg[t].left, 0, 0
    start, end, full, steps, last = ys[left], ys[left + 1], 0, 0, len(ys) - 2
    while steps < most and now < until:
        needed = st.residue[t, full]
        if needed > free:
            break
        free -= needed
        used += needed
        full = (full if full > 0 else f.block_tokens) - 1
        y = context / n
        if y >= end and left < last:
            st.tg[t].lookups, st.tg[t].lookup_sum = looked, looked_sum
            flush_cell(st, ty, t)
            enter_cell(st, tb, t, y)
            left, looked, looked_sum = st.tg[t].left, 0, 0
            at, slope, start, end = st.cell[t, 0].at, st.cell[t, 0].slope, ys[left], ys[left + 1]
        looked += 1
        looked_sum += context
        local = rest + (at + (y - start) * slope) + group
        added = exposed(f, local, host_s, 0.0, 0.0)
        seconds = local + added
        seqs_s += n * seconds
        kv_s += used * seconds
        busy += seconds
        host += added
        context += n
        add_gap(f, st, (now + seconds) - now, n)
        now += seconds
        steps += 1
    st.tg[t].lookups, st.tg[t].lookup_sum = looked, looked_sum
    tot = st.tot[f.pool]
    tot.seqs_s, tot.kv_s, tot.busy, tot.host = seqs_s, kv_s, busy, host
    tot.kv_peak = max(tot.kv_peak, used)
    return steps, now


@jit
def leap(
    f: Any, st: State, tb: Curves, ty: TallyArrays, e: int, now: float, until: float, last: bool
) -> float:
    """Run steps from `now` on while nothing can change the batch; returns when the last ends.

    With `last` the step in which some request has its last token is one of them.
    """
    low = first_rank(f, e)
    if now >= until:
        return now
    most = prepare(f, st, tb, low) - (0 if last else 1)
    if most <= 0:
        return now
    if f.dp == 1 and f.uniform:
        steps, now = steps_alone(f, st, tb, ty, low, now, until, most)
    else:
        steps, now = steps_together(f, st, tb, ty, low, now, until, most)
    if steps > 0:
        count(tb, ty, GROUP, group_tokens(f, st, low), steps)
        settle(f, st, tb, ty, low, steps, now)
        st.tot[f.pool].n_steps += steps
    return now
