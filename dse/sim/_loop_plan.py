"""Compiled closed loops: what they work on, and which batch a slot forms (see `_loop`)."""

from typing import Any, NamedTuple

from dse.sim._jit import jit
from dse.sim._price import sheet
from dse.sim._state import Curves

NOBODY = -1


class Loop(NamedTuple):
    """`rq[r]` requests, `tg[t]` ranks, `ts[t, s]` what runs on their slots, `ends[t, s, step mod
    width]` who has the last token in which decode step of a slot, `rp[e]` replicas, `es[e, s]`
    steps in flight, `due[i]` arrivals, `tot[pool]` sums, as in `dse.sim._state.State`, and
    `cell[t, stage]` the seconds of a rank's prompts and its line of the decode table.
    """

    rq: Any
    tg: Any
    ts: Any
    ends: Any
    rp: Any
    es: Any
    due: Any
    tot: Any
    cell: Any


@jit
def join(st: Loop, t: int, r: int) -> None:
    """Put a request last in line on a rank."""
    st.rq[r].after = NOBODY
    if st.tg[t].n_waiting == 0:
        st.tg[t].head = r
    else:
        st.rq[st.tg[t].tail].after = r
    st.tg[t].tail = r
    st.tg[t].n_waiting += 1


@jit
def leave_line(st: Loop, t: int) -> int:
    """Take the first in line."""
    r = st.tg[t].head
    st.tg[t].head = st.rq[r].after
    st.tg[t].n_waiting -= 1
    return int(r)


@jit
def line_up(st: Loop, t: int, s: int, r: int) -> None:
    """Put a request among those that are done with their first step on a slot."""
    st.rq[r].after = NOBODY
    if st.ts[t, s].done < 0:
        st.ts[t, s].done = r
    else:
        st.rq[st.ts[t, s].done_last].after = r
    st.ts[t, s].done_last = r


@jit
def decode_from_now(st: Loop, t: int, s: int, r: int, had: int) -> None:
    """Let a request that `had` so many decode steps go on in its slot from the next step on."""
    begun = st.ts[t, s].clock - had
    place = (begun + st.rq[r].osl - 2) % st.ends.shape[2]
    st.rq[r].after = st.ends[t, s, place]
    st.ends[t, s, place] = r
    st.ts[t, s].n_running += 1
    st.ts[t, s].base += st.rq[r].isl + 1 - begun


@jit
def seats(f: Any, st: Loop, t: int, s: int, running: int) -> int:
    """Requests that a micro-batch may hold (`dse.sim._plan.seats`)."""
    if f.pp == 1:
        return int(f.max_seqs)
    total = st.tg[t].n_waiting
    for slot in range(f.pp):
        total += st.ts[t, slot].n_running + st.ts[t, slot].n_prompts
    return int(max(min(-(-total // f.pp), -(-f.max_seqs // f.pp)), running))


@jit
def prefill(f: Any, st: Loop, tb: Curves, t: int, s: int) -> None:
    """Fill the budget that decoding leaves with prompts: those that are through stand in `done`."""
    slot = st.ts[t, s]
    left = f.max_tokens - (0 if not f.chunked else slot.n_running)
    running = slot.n_running + slot.n_prompts
    most = seats(f, st, t, s, running)
    if slot.partial >= 0 and left > 0:
        # It is counted again with its chunk.
        slot.prompts = slot.n_prompts = 0
    while left > 0:
        if slot.partial < 0:
            if st.tg[t].n_waiting == 0 or running >= most:
                return
            if not f.chunked and slot.n_chunks > 0 and st.rq[st.tg[t].head].isl > left:
                return
            slot.partial = leave_line(st, t)
            running += 1
        r = slot.partial
        cached = st.rq[r].cached
        size = st.rq[r].isl - cached
        if f.chunked:
            size = min(size, left)
        for stage in range(len(tb.stage_count)):
            z = tb.prefill[stage]
            least = z[0, 0]
            added = sheet(size, cached, tb.chunk, tb.context, z) - least
            st.cell[t, stage].prompts_s += added if slot.n_chunks > 0 else least + added
        left -= size
        slot.new += size
        slot.n_chunks += 1
        slot.n_prompts += 1
        slot.prompts += st.rq[r].isl
        st.rq[r].cached = cached + size
        if st.rq[r].cached == st.rq[r].isl:
            line_up(st, t, s, r)
            slot.partial = NOBODY


@jit
def admit(f: Any, st: Loop, t: int, s: int) -> None:
    """Let requests whose prompts another pool computed decode, while there are places.

    Where who is admitted goes first the others pause for a step: those admitted stand in `done`.
    """
    slot = st.ts[t, s]
    most, running = seats(f, st, t, s, slot.n_running), slot.n_running
    left = f.max_tokens - (slot.n_running if f.chunked else 0)
    while left > 0 and st.tg[t].n_waiting > 0 and running < most:
        r = leave_line(st, t)
        left, running = left - 1, running + 1
        if f.chunked:
            decode_from_now(st, t, s, r, 0)
        else:
            line_up(st, t, s, r)
            slot.n_prompts += 1
            slot.prompts += st.rq[r].isl + 1


@jit
def plan(f: Any, st: Loop, tb: Curves, t: int, s: int) -> int:
    """Form the batch of one slot on one rank; returns its requests."""
    slot = st.ts[t, s]
    slot.new = slot.n_chunks = 0
    for stage in range(len(tb.stage_count)):
        st.cell[t, stage].prompts_s = 0.0
    if slot.n_running > f.max_tokens:
        st.tot[0].is_open = True
    if f.pool > 0:
        admit(f, st, t, s)
    else:
        prefill(f, st, tb, t, s)
    slot.n_decode = slot.n_running if f.chunked or slot.done < 0 else 0
    slot.context = slot.base + slot.n_running * slot.clock
    if f.pool > 0 and slot.done >= 0:
        slot.n_decode, slot.context = slot.n_prompts, slot.prompts
    return int(slot.n_decode + slot.n_chunks)
