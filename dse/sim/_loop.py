"""Compiled closed loops with room for all: when each request has its first and its last token.

The run of `dse.sim._run` in far fewer moves: who decodes on a slot of a rank is a number and a
calendar of last tokens, not a list; nobody counts blocks, energy or gaps between tokens. Times are
sums of the same terms in the same order.
"""

from typing import Any

from dse.sim._jit import entry, jit
from dse.sim._loop_plan import NOBODY, Loop, decode_from_now, join, plan
from dse.sim._loop_price import INFINITY, decode_on, note_near, step_seconds
from dse.sim._run import first_end, pop_due, push_due
from dse.sim._state import Curves


@jit
def ask_next(f: Any, st: Loop, now: float) -> None:
    """Ask the next request of the loop."""
    r = st.tot[0].next_root
    if r < len(st.rq):
        st.tot[0].next_root += 1
        st.rq[r].asked = now
        push_due(st, r, now + f.arrival_s, 0)


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
                end_s = st.es[other, slot].end_s
                note_near(st, now, end_s)
                if other != e and end_s == now and st.es[e, s].end_s == now:
                    # Leaps of the simulator round otherwise: it may not see them end at once.
                    st.tot[0].is_open = True
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
