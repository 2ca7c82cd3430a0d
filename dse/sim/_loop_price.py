"""Compiled closed loops: what the steps of a replica take (see `_loop`)."""

from typing import Any

from dse.cost.tally import GROUP, HEAD, TOKEN
from dse.sim._jit import inline, jit
from dse.sim._loop_plan import Loop
from dse.sim._price import cell, computed_tokens, exposed, read, sheet
from dse.sim._state import Curves

INFINITY = float("inf")
# Times that differ by less than rounding might: what comes first is then not known.
NEAR = 2e-11


@jit
def host_of(f: Any, st: Loop, low: int, s: int) -> float:
    """Seconds of the host for the busiest of a replica's ranks."""
    most = 0.0
    for t in range(low, low + f.dp):
        slot = st.ts[t, s]
        spent = f.step_s + f.request_s * (slot.n_decode + slot.n_chunks)
        most = max(most, spent + f.prefill_token_s * slot.new)
    return most


@jit
def rank_seconds(f: Any, st: Loop, tb: Curves, stage: int, t: int, s: int) -> float:
    """Seconds of one rank's share of a step on one stage."""
    slot = st.ts[t, s]
    n = slot.n_decode
    found = read(tb, TOKEN, stage, computed_tokens(f, n, slot.new, slot.n_chunks))
    found += read(tb, HEAD, stage, n + slot.n_chunks)
    if n > 0:
        mean = slot.context / n
        found += sheet(n, mean, tb.seqs, tb.context, tb.decode[stage])
    return found + float(st.cell[t, stage].prompts_s)


@jit
def step_seconds(f: Any, st: Loop, tb: Curves, low: int, s: int) -> tuple[float, float]:
    """Occupancy and latency of a step of ranks `low` on."""
    m_group, launch_s, gap = 0, 0.0, 0.0
    for t in range(low, low + f.dp):
        slot = st.ts[t, s]
        if slot.n_chunks > 0:
            launch_s, gap = f.launch_s, f.prefill_gap
        m_group += computed_tokens(f, slot.n_decode, slot.new, slot.n_chunks)
    slowest, total = 0.0, 0.0
    for stage in range(len(tb.stage_count)):
        local = rank_seconds(f, st, tb, stage, low, s)
        for t in range(low + 1, low + f.dp):
            local = max(local, rank_seconds(f, st, tb, stage, t, s))
        local += read(tb, GROUP, stage, m_group)
        slowest = max(slowest, local)
        total += tb.stage_count[stage] * local
    added = exposed(f, slowest, host_of(f, st, low, s), launch_s, gap)
    return slowest + added, total + added


@jit
def enter_cell(st: Loop, tb: Curves, t: int, n: int, y: float) -> None:
    """The line of the decode table on the only stage where `n` requests have mean context `y`."""
    row, left = cell(n, tb.seqs), cell(y, tb.context)
    share = (n - tb.seqs[row]) / (tb.seqs[row + 1] - tb.seqs[row])
    z, line = tb.decode[0], st.cell[t, 0]
    after = z[row, left + 1] + share * (z[row + 1, left + 1] - z[row, left + 1])
    line.at = z[row, left] + share * (z[row + 1, left] - z[row, left])
    line.slope = (after - line.at) / (tb.context[left + 1] - tb.context[left])
    line.start = tb.context[left]
    line.end = tb.context[left + 1] if left < len(tb.context) - 2 else INFINITY


@inline
def decode_seconds(st: Loop, tb: Curves, t: int) -> float:
    """Seconds of a rank that only decodes, at its present context."""
    n = st.ts[t, 0].n_decode
    if n == 0:
        return float(st.cell[t, 0].rest)
    y = st.tg[t].context / n
    if y >= st.cell[t, 0].end:
        enter_cell(st, tb, t, n, y)
    line = st.cell[t, 0]
    return float(line.rest + (line.at + (y - line.start) * line.slope))


@jit
def decode_on(
    f: Any, st: Loop, tb: Curves, low: int, now: float, until: float
) -> tuple[int, float]:
    """Steps of ranks in lock-step that only decode, until somebody has the last token or one does
    not begin before `until`; returns how many, and when the last ends.
    """
    tokens, width = 0, st.ends.shape[2]
    for t in range(low, low + f.dp):
        slot = st.ts[t, 0]
        n = slot.n_decode
        m = computed_tokens(f, n, 0, 0)
        tokens += m
        st.tg[t].context = slot.context
        st.cell[t, 0].rest = read(tb, TOKEN, 0, m) + read(tb, HEAD, 0, n)
        if n > 0:
            enter_cell(st, tb, t, n, st.tg[t].context / n)
    group, host_s, steps, going_on = read(tb, GROUP, 0, tokens), host_of(f, st, low, 0), 0, True
    while going_on:
        local = decode_seconds(st, tb, low)
        for t in range(low + 1, low + f.dp):
            local = max(local, decode_seconds(st, tb, t))
        local += group
        now += local + exposed(f, local, host_s, 0.0, 0.0)
        for t in range(low, low + f.dp):
            n = st.ts[t, 0].n_decode
            st.tg[t].context += n
            if n > 0 and st.ends[t, 0, (st.ts[t, 0].clock + steps) % width] >= 0:
                going_on = False
        steps += 1
        note_near(st, now, until)
        going_on = going_on and now < until
    return steps, now


@inline
def note_near(st: Loop, one: float, other: float) -> None:
    """Leave the run open if rounding decides which of two times is first."""
    if one != other and abs(one - other) <= NEAR * one:
        st.tot[0].is_open = True
