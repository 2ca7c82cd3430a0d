"""The compiled run: ends of steps, arrivals and plans in order of time."""

from typing import Any

import numpy as np

from dse.cost.tally import GROUP, TallyArrays
from dse.sim._jit import entry, inline, jit
from dse.sim._kv import fresh_lists, publish, release
from dse.sim._plan import leave, plan, push_waiting
from dse.sim._price import count, count_rank, step_seconds
from dse.sim._skip import add_gap, first_rank, leap
from dse.sim._state import Curves, State

INFINITY = float("inf")
ORDER_BITS = 40
GOLDEN, MIXER = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


@jit
def is_before(st: Any, a: int, b: int) -> bool:
    """Whether entry `a` of the arrivals heap comes before `b`."""
    if st.due[a].time != st.due[b].time:
        return bool(st.due[a].time < st.due[b].time)
    return bool(st.due[a].seq < st.due[b].seq)


@jit
def swap(st: Any, a: int, b: int) -> None:
    """Exchange two entries of the arrivals heap."""
    st.due[a].time, st.due[b].time = st.due[b].time, st.due[a].time
    st.due[a].seq, st.due[b].seq = st.due[b].seq, st.due[a].seq
    st.due[a].request, st.due[b].request = st.due[b].request, st.due[a].request
    st.due[a].pool, st.due[b].pool = st.due[b].pool, st.due[a].pool


@jit
def ask(f: Any, st: State, r: int, time: float) -> None:
    """A request is asked at `time`; it reaches the engine when the host has taken it in."""
    st.rq[r].asked = time
    push_due(st, r, time + f.arrival_s, 0)


@jit
def push_due(st: Any, r: int, time: float, pool: int) -> None:
    """A request will reach `pool` at `time`."""
    i = st.tot[0].n_due
    st.due[i].time, st.due[i].seq, st.due[i].request = time, st.tot[0].n_seq, r
    st.due[i].pool = pool
    st.tot[0].n_due += 1
    st.tot[0].n_seq += 1
    while i > 0 and is_before(st, i, (i - 1) // 2):
        swap(st, i, (i - 1) // 2)
        i = (i - 1) // 2


@jit
def pop_due(st: Any) -> int:
    """The next request to reach the engine."""
    r = st.due[0].request
    st.tot[0].n_due -= 1
    n = st.tot[0].n_due
    swap(st, 0, n)
    i = 0
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and is_before(st, child + 1, child):
            child += 1
        if is_before(st, i, child):
            break
        swap(st, i, child)
        i = child
    return int(r)


@jit
def load_of(f: Any, st: State, t: int) -> int:
    """Requests that wait or run on a rank."""
    total = st.tg[t].heap_n
    for s in range(f.pp):
        total += st.ts[t, s].run_n
    return int(total)


@jit
def route(f: Any, st: State, r: int) -> None:
    """Give a request to a rank for good."""
    t = f.first_target + st.tot[f.pool].n_routed % f.n_targets
    if f.least_loaded:
        t = f.first_target
        for other in range(t + 1, t + f.n_targets):
            if load_of(f, st, other) < load_of(f, st, t):
                t = other
    st.rq[r].order = (st.rq[r].rank_by << ORDER_BITS) + st.tot[f.pool].n_routed
    st.tot[f.pool].n_routed += 1
    push_waiting(st, t, r)
    e = f.first_replica + (t - f.first_target) // f.dp
    st.rp[e].dirty = True
    st.rp[e].stable = False


@jit
def yielded(f: Any, r: int, position: int) -> int:
    """Tokens out of one decode step (`Drafts.yielded`)."""
    if f.n_draft == 0:
        return 1
    z = f.seed + np.uint64(r + 1) * np.uint64(GOLDEN) + np.uint64(position + 1) * np.uint64(MIXER)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    drawn = float(z >> np.uint64(11)) * (1.0 / (1 << 53))
    n_out, chance = 1, f.acceptance
    while n_out <= f.n_draft and drawn < chance:
        n_out += 1
        chance *= f.acceptance
    return n_out


@inline
def advance(f: Any, st: State, t: int, s: int, i: int, now: float) -> None:
    """Hand out the tokens of one chunk."""
    r = st.ch[t, s, i].request
    if st.ch[t, s, i].decode:
        n_out = min(yielded(f, r, st.rq[r].generated), st.rq[r].osl - st.rq[r].generated)
        st.rq[r].computed += n_out
    else:
        st.rq[r].computed += st.ch[t, s, i].new
        n_out = 1 if st.rq[r].computed == st.rq[r].isl + st.rq[r].generated else 0
    if n_out == 0:
        return
    if st.rq[r].generated == 0:
        st.rq[r].first_s = now
    else:
        add_gap(f, st, now - st.rq[r].last_s, 1)
    if n_out > 1:
        add_gap(f, st, 0.0, n_out - 1)
    st.rq[r].generated += n_out
    st.rq[r].last_s = now


@jit
def finish(f: Any, st: State, t: int, s: int, r: int, now: float) -> None:
    """A request has all of its tokens: it leaves, and what waits for it is asked."""
    leave(st, t, s, r)
    release(f, st, t, r)
    if f.hands_over and st.rq[r].osl > 1:
        push_due(st, r, now + st.rq[r].transfer_s, 1)
        return
    st.rq[r].finish_s = now
    st.tot[0].n_done += 1
    following = st.rq[r].successor
    if following >= 0:
        ask(f, st, following, now + st.rq[following].think)
    elif f.concurrency > 0 and st.tot[0].next_root < len(st.roots):
        root = st.roots[st.tot[0].next_root]
        st.tot[0].next_root += 1
        ask(f, st, root, now)


@jit
def end_step(f: Any, st: State, e: int, s: int, now: float) -> bool:
    """End a micro-batch; True if all that run now decode, and all had a token."""
    st.es[e, s].end_s = INFINITY
    st.rp[e].dirty = True
    all_decode = True
    low = first_rank(f, e)
    for t in range(low, low + f.dp):
        going_on = 0
        for i in range(st.ts[t, s].chunk_n):
            r = st.ch[t, s, i].request
            advance(f, st, t, s, i, now)
            publish(f, st, t, r)
            if st.rq[r].generated >= (1 if f.hands_over else st.rq[r].osl):
                finish(f, st, t, s, r, now)
                st.rp[e].stable = False
            elif st.rq[r].last_s == now:
                going_on += 1
        all_decode = all_decode and going_on == st.ts[t, s].run_n
    return all_decode


@jit
def finish_done(f: Any, st: State, e: int, now: float) -> None:
    """Let go, in order, of the requests that have all of their tokens after a leap."""
    low = first_rank(f, e)
    for t in range(low, low + f.dp):
        i = 0
        while i < st.ts[t, 0].run_n:
            r = st.ch[t, 0, i].running
            if st.rq[r].generated >= st.rq[r].osl:
                finish(f, st, t, 0, r, now)
            else:
                i += 1


@jit
def begin(f: Any, st: State, tb: Curves, ty: TallyArrays, e: int, s: int, now: float) -> bool:
    """Plan and start a micro-batch of slot `s`; False if there is nothing to do."""
    low, chunks, stable = first_rank(f, e), 0, True
    for t in range(low, low + f.dp):
        stable = plan(f, st, t, s, now) and stable
        chunks += st.ts[t, s].chunk_n
    if chunks == 0:
        return False
    seconds, latency, added, m_group = step_seconds(f, st, tb, low, s)
    for t in range(low, low + f.dp):
        used = f.n_units - st.tg[t].free
        st.tot[f.pool].seqs_s += st.ts[t, s].chunk_n * seconds
        st.tot[f.pool].kv_s += used * seconds
        st.tot[f.pool].kv_peak = max(st.tot[f.pool].kv_peak, used)
        st.tot[f.pool].n_decode += st.tg[t].n_decode
        st.tot[f.pool].n_prefill += st.tg[t].new
        count_rank(f, st, tb, ty, t, s)
    count(tb, ty, GROUP, m_group, 1)
    st.tot[f.pool].n_steps += 1
    st.tot[f.pool].busy += seconds
    st.tot[f.pool].host += added
    st.rp[e].stable = stable
    st.rp[e].free_s = now + seconds
    st.es[e, s].end_s = now + latency
    st.rp[e].wake_s = st.rp[e].free_s if st.rp[e].free_s < st.es[e, s].end_s else INFINITY
    st.es[e, s].begun = st.tot[0].n_begun
    st.tot[0].n_begun += 1
    return True


@jit
def start(f: Any, st: State, tb: Curves, ty: TallyArrays, e: int, now: float) -> None:
    """Start the next micro-batch of a replica if its first stage is free."""
    st.rp[e].dirty = False
    if st.rp[e].wake_s <= now:
        st.rp[e].wake_s = INFINITY
    if now < st.rp[e].free_s:
        return
    for offset in range(f.pp):
        s = (st.rp[e].next_slot + offset) % f.pp
        if st.es[e, s].end_s == INFINITY and begin(f, st, tb, ty, e, s, now):
            st.rp[e].next_slot = (s + 1) % f.pp
            return


@jit
def others_next(f: Any, st: State, e: int) -> float:
    """When a request may next come to replica `e`: one that is due, or one that another replica's
    answer brings about.
    """
    soonest = st.due[0].time if st.tot[0].n_due > 0 else INFINITY
    for other in range(len(st.rp)):
        if other != e and f.answers:
            if st.rp[other].dirty:
                return 0.0
            soonest = min(soonest, st.rp[other].wake_s)
            for s in range(st.es.shape[1]):
                soonest = min(soonest, st.es[other, s].end_s)
    return float(soonest)


@jit
def first_end(st: Any) -> tuple[int, int]:
    """Replica and slot of the step that ends first, of equals the one begun first."""
    best_e, best_s = 0, 0
    for e in range(st.es.shape[0]):
        for s in range(st.es.shape[1]):
            a, b = st.es[e, s].end_s, st.es[best_e, best_s].end_s
            if a < b or (a == b and st.es[e, s].begun < st.es[best_e, best_s].begun):
                best_e, best_s = e, s
    return best_e, best_s


@jit
def is_blocked(f: Any, st: State, e: int) -> bool:
    """Whether the next plan cannot admit, and its budget holds a token of each that runs."""
    low = first_rank(f, e)
    for t in range(low, low + f.dp):
        running = st.ts[t, 0].run_n
        if st.tg[t].heap_n > 0 and running < f.max_seqs and not (f.empty_only and running > 0):
            return False
        if running > f.max_tokens and not f.empty_only:
            return False
    return True


@jit
def end_and_leap(
    f: Any, st: State, tb: Curves, ty: TallyArrays, e: int, s: int, now: float
) -> None:
    """End a step, and where its batch can only go on decoding, run on to the next event."""
    all_decode = end_step(f, st, e, s, now)
    if not all_decode or f.pp > 1 or f.n_draft > 0:
        return
    if not (st.rp[e].stable or is_blocked(f, st, e)):
        return
    # What finishes early is seen by no one else than the replica itself.
    last = len(st.rp) == 1 and (f.dp == 1 or not f.least_loaded)
    later = leap(f, st, tb, ty, e, now, others_next(f, st, e), last)
    if later > now:
        st.rp[e].dirty = False
        st.rp[e].free_s = later
        st.rp[e].wake_s = later
        if last:
            finish_done(f, st, e, later)


@jit
def ask_first(f: Any, st: State) -> None:
    """Ask what does not wait for an answer."""
    first = len(st.roots)
    if f.concurrency > 0:
        first = min(f.concurrency, first)
    for i in range(first):
        r = st.roots[i]
        ask(f, st, r, 0.0 if f.concurrency > 0 else st.rq[r].arrival_s)
    st.tot[0].next_root = first


@entry
def run(
    fixed: Any, st: State, tb0: Curves, ty0: TallyArrays, tb1: Curves, ty1: TallyArrays
) -> None:
    """Run until nothing is left to happen. `fixed` has an entry a pool; the second pool's tables
    are those of the first where there is none.
    """
    for p in range(len(fixed)):
        fresh_lists(fixed[p], st)
    ask_first(fixed[0], st)
    while True:
        e, s = first_end(st)
        now = st.es[e, s].end_s
        if st.tot[0].n_due > 0:
            now = min(now, st.due[0].time)
        for other in range(len(st.rp)):
            now = min(now, st.rp[other].wake_s)
        if now == INFINITY:
            return
        while st.es[e, s].end_s == now:
            first = e < fixed[0].n_replicas
            f, tb, ty = fixed[0 if first else 1], tb0 if first else tb1, ty0 if first else ty1
            end_and_leap(f, st, tb, ty, e, s, now)
            e, s = first_end(st)
        while st.tot[0].n_due > 0 and st.due[0].time == now:
            pool = st.due[0].pool
            route(fixed[pool], st, pop_due(st))
        for other in range(len(st.rp)):
            if st.rp[other].dirty or st.rp[other].wake_s <= now:
                first = other < fixed[0].n_replicas
                f, tb, ty = fixed[0 if first else 1], tb0 if first else tb1, ty0 if first else ty1
                start(f, st, tb, ty, other, now)
