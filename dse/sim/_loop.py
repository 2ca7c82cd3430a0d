"""Compiled closed loops with room for all: when each request has its first and its last token.

The run of `dse.sim._run` in far fewer moves: who decodes on a slot of a rank is a number and a
calendar of last tokens, not a list; nobody counts blocks, energy or gaps between tokens. Times are
sums of the same terms in the same order.
"""

from typing import Any, NamedTuple

from dse.cost.tally import GROUP, HEAD, TOKEN
from dse.sim._jit import entry, inline, jit
from dse.sim._price import cell, computed_tokens, exposed, read, sheet
from dse.sim._run import INFINITY, pop_due, push_due
from dse.sim._state import Curves

NOBODY = -1
# Times that differ by less than rounding might: what comes first is then not known.
NEAR = 2e-11


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
def ask_next(f: Any, st: Loop, now: float) -> None:
    """Ask the next request of the loop."""
    r = st.tot[0].next_root
    if r < len(st.rq):
        st.tot[0].next_root += 1
        st.rq[r].asked = now
        push_due(st, r, now + f.arrival_s, 0)


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


@jit
def begin(f: Any, st: Loop, tb: Curves, e: int, s: int, now: float) -> bool:
    """Plan and start a micro-batch of slot `s`; False if there is nothing to do."""
    low, requests, chunks = f.first_target + (e - f.first_replica) * f.dp, 0, 0
    for t in range(low, low + f.dp):
        requests += plan(f, st, tb, t, s)
        chunks += st.ts[t, s].n_chunks + (st.ts[t, s].done >= 0)
    if requests == 0:
        return False
    st.es[e, s].steps = 1
    if chunks == 0 and f.pp == 1:
        steps, end_s = decode_on(f, st, tb, low, now, others_next(st, e))
        st.es[e, s].steps, st.es[e, s].end_s, st.rp[e].free_s = steps, end_s, end_s
    else:
        seconds, latency = step_seconds(f, st, tb, low, s)
        st.rp[e].free_s = now + seconds
        st.es[e, s].end_s = now + latency
    st.rp[e].wake_s = st.rp[e].free_s if st.rp[e].free_s < st.es[e, s].end_s else INFINITY
    st.es[e, s].begun = st.tot[0].n_begun
    st.tot[0].n_begun += 1
    return True


@jit
def others_next(st: Loop, e: int) -> float:
    """When a request may next come to replica `e`."""
    soonest = st.due[0].time if st.tot[0].n_due > 0 else INFINITY
    for other in range(len(st.rp)):
        if other != e:
            if st.rp[other].dirty:
                return 0.0
            soonest = min(soonest, st.rp[other].wake_s)
            for s in range(st.es.shape[1]):
                soonest = min(soonest, st.es[other, s].end_s)
    return float(soonest)


@jit
def start(f: Any, st: Loop, tb: Curves, e: int, now: float) -> None:
    """Start the next micro-batch of a replica if its first stage is free."""
    st.rp[e].dirty = False
    if st.rp[e].wake_s <= now:
        st.rp[e].wake_s = INFINITY
    if now < st.rp[e].free_s:
        return
    for offset in range(f.pp):
        s = (st.rp[e].next_slot + offset) % f.pp
        if st.es[e, s].end_s == INFINITY and begin(f, st, tb, e, s, now):
            st.rp[e].next_slot = (s + 1) % f.pp
            return


@jit
def has_room(f: Any, st: Loop, t: int, s_ends: int, steps: int) -> bool:
    """Whether a rank surely held all KV in the last of the `steps` that a slot ends."""
    tokens, requests = st.ts[t, s_ends].n_running * (steps - 1), 0
    for s in range(f.pp):
        slot = st.ts[t, s]
        tokens += slot.base + slot.n_running * slot.clock + slot.prompts
        requests += slot.n_running + slot.n_prompts
    if f.uniform:
        return bool(tokens / f.block_tokens + requests <= f.n_units)
    return bool(requests * f.units_of_longest <= f.n_units)


@jit
def end_decoding(f: Any, st: Loop, t: int, s: int, steps: int, now: float) -> None:
    """Hand out the tokens of `steps` steps; whoever has all of them leaves."""
    slot = st.ts[t, s]
    slot.clock += steps
    last = slot.clock - 1
    place = last % st.ends.shape[2]
    r = st.ends[t, s, place]
    st.ends[t, s, place] = NOBODY
    while r >= 0:
        slot.n_running -= 1
        slot.base -= st.rq[r].isl - (last - st.rq[r].osl + 1)
        st.rq[r].finish_s = now
        st.tot[0].n_done += 1
        ask_next(f, st, now)
        r = st.rq[r].after


@jit
def end_prompts(f: Any, st: Loop, t: int, s: int, now: float) -> None:
    """First tokens of those whose prompts are through; or the second, if others computed them."""
    slot = st.ts[t, s]
    r = slot.done
    slot.done = NOBODY
    while r >= 0:
        following = st.rq[r].after
        if f.pool == 0:
            st.rq[r].first_s = now
        if st.rq[r].osl == 1 + (f.pool > 0):
            st.rq[r].finish_s = now
            st.tot[0].n_done += 1
            ask_next(f, st, now)
        elif f.hands_over:
            push_due(st, r, now + st.rq[r].transfer_s, 1)
        else:
            decode_from_now(st, t, s, r, int(f.pool > 0))
        r = following
    slot.prompts = slot.n_prompts = 0
    if slot.partial >= 0:
        slot.prompts, slot.n_prompts = st.rq[slot.partial].isl, 1


@jit
def end_step(f: Any, st: Loop, e: int, s: int, now: float) -> None:
    """End what a slot was doing."""
    steps = st.es[e, s].steps
    st.es[e, s].end_s = INFINITY
    st.rp[e].dirty = True
    low = f.first_target + (e - f.first_replica) * f.dp
    for t in range(low, low + f.dp):
        if not has_room(f, st, t, s, steps):
            st.tot[0].is_open = True
        if st.ts[t, s].n_decode > 0 and (f.pool == 0 or st.ts[t, s].done < 0):
            end_decoding(f, st, t, s, steps, now)
        end_prompts(f, st, t, s, now)


@jit
def first_end(st: Loop) -> tuple[int, int]:
    """Replica and slot of the step that ends first, of equals the one begun first."""
    best_e, best_s = 0, 0
    for e in range(st.es.shape[0]):
        for s in range(st.es.shape[1]):
            a, b = st.es[e, s].end_s, st.es[best_e, best_s].end_s
            if a < b or (a == b and st.es[e, s].begun < st.es[best_e, best_s].begun):
                best_e, best_s = e, s
    return best_e, best_s


@jit
def next_event(st: Loop, e: int, s: int) -> float:
    """When something happens next; near ones leave the run open."""
    now = st.es[e, s].end_s
    if st.tot[0].n_due > 0:
        now = min(now, st.due[0].time)
    for other in range(len(st.rp)):
        now = min(now, st.rp[other].wake_s)
    if now < INFINITY:
        if st.tot[0].n_due > 0:
            note_near(st, now, st.due[0].time)
        for other in range(len(st.rp)):
            note_near(st, now, st.rp[other].wake_s)
            for slot in range(st.es.shape[1]):
                note_near(st, now, st.es[other, slot].end_s)
    return float(now)


@jit
def load_of(f: Any, st: Loop, t: int) -> int:
    """Requests that wait or run on a rank."""
    total = st.tg[t].n_waiting
    for s in range(f.pp):
        total += st.ts[t, s].n_running + st.ts[t, s].n_prompts
    return int(total)


@jit
def route(f: Any, st: Loop, r: int) -> None:
    """Give a request to the next rank in turn, or to the one with the fewest."""
    t = f.first_target + st.tot[f.pool].n_routed % f.n_targets
    if f.least_loaded:
        t = f.first_target
        for other in range(t + 1, t + f.n_targets):
            if load_of(f, st, other) < load_of(f, st, t):
                t = other
    st.tot[f.pool].n_routed += 1
    join(st, t, r)
    st.rp[f.first_replica + (t - f.first_target) // f.dp].dirty = True


@entry
def run(fixed: Any, st: Loop, tb0: Curves, tb1: Curves) -> bool:
    """Run until nothing is left to happen; False where KV may run short or rounding decides."""
    for _ in range(min(fixed[0].concurrency, len(st.rq))):
        ask_next(fixed[0], st, 0.0)
    while not st.tot[0].is_open:
        e, s = first_end(st)
        now = next_event(st, e, s)
        if now == INFINITY:
            break
        while st.es[e, s].end_s == now:
            end_step(fixed[0 if e < fixed[0].n_replicas else 1], st, e, s, now)
            e, s = first_end(st)
        while st.tot[0].n_due > 0 and st.due[0].time == now:
            pool = st.due[0].pool
            route(fixed[pool], st, pop_due(st))
        for other in range(len(st.rp)):
            if st.rp[other].dirty or st.rp[other].wake_s <= now:
                first = other < fixed[0].n_replicas
                f, tb = fixed[0 if first else 1], tb0 if first else tb1
                start(f, st, tb, other, now)
    return bool(not st.tot[0].is_open and st.tot[0].n_done == len(st.rq))
