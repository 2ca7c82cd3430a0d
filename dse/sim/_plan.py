"""Compiled scheduling: the moves of `dse.serving.schedulers` on arrays."""

from typing import Any

from dse.sim._jit import inline, jit
from dse.sim._kv import can_admit, grow, n_hits, release, share
from dse.sim._state import State

NO_LIMIT_TOKENS = 1 << 40


@jit
def push_waiting(st: State, t: int, r: int) -> None:
    """Put a request in line (a binary heap by `order`)."""
    i = st.tg[t].heap_n
    st.tg[t].heap_n += 1
    while i > 0:
        parent = (i - 1) // 2
        if st.rq[st.heap[t, parent]].order <= st.rq[r].order:
            break
        st.heap[t, i] = st.heap[t, parent]
        i = parent
    st.heap[t, i] = r


@jit
def pop_waiting(st: State, t: int) -> None:
    """Take the first in line out of it."""
    st.tg[t].heap_n -= 1
    n = st.tg[t].heap_n
    last = st.heap[t, n]
    i = 0
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and st.rq[st.heap[t, child + 1]].order < st.rq[st.heap[t, child]].order:
            child += 1
        if st.rq[last].order <= st.rq[st.heap[t, child]].order:
            break
        st.heap[t, i] = st.heap[t, child]
        i = child
    st.heap[t, i] = last


@jit
def leave(st: State, t: int, s: int, r: int) -> None:
    """Take a request off the running ones."""
    n = st.ts[t, s].run_n
    i = n - 1
    while st.ch[t, s, i].running != r:
        i -= 1
    for j in range(i, n - 1):
        st.ch[t, s, j].running = st.ch[t, s, j + 1].running
    st.ts[t, s].run_n = n - 1


@inline
def add_chunk(st: State, t: int, s: int, r: int, new: int, decode: bool) -> None:
    """Put `new` tokens of a request in the batch and in its sums."""
    i = st.ts[t, s].chunk_n
    st.ch[t, s, i].request = r
    st.ch[t, s, i].new = new
    st.ch[t, s, i].context = st.rq[r].computed
    st.ch[t, s, i].decode = decode
    st.ts[t, s].chunk_n = i + 1
    if decode:
        st.tg[t].n_decode += 1
        st.tg[t].context += st.rq[r].computed + new
    else:
        st.tg[t].n_chunks += 1
        st.tg[t].new += new


@inline
def room(f: Any, st: State, r: int, cached: int, new: int, decode: bool) -> int:
    """Tokens that the cache must hold after a chunk."""
    if decode:
        return int(cached + min(new, st.rq[r].osl - st.rq[r].generated))
    return cached + new


@inline
def continue_running(f: Any, st: State, t: int, s: int, budget: int) -> tuple[int, int]:
    """Move every running request on; returns what is left of the budget and how many gave way."""
    position, gave_way = 0, 0
    while position < st.ts[t, s].run_n and budget > 0:
        r = st.ch[t, s, position].running
        known = st.rq[r].isl + st.rq[r].generated
        decode = st.rq[r].generated > 0 and st.rq[r].computed == known - 1
        new = f.q_tokens if decode else min(known - st.rq[r].computed, budget)
        while not grow(f, st, t, r, room(f, st, r, st.rq[r].computed, new, decode)):
            victim = st.ch[t, s, st.ts[t, s].run_n - 1].running
            st.ts[t, s].run_n -= 1
            release(f, st, t, victim)
            st.rq[victim].computed = 0
            st.rq[victim].preempted += 1
            push_waiting(st, t, victim)
            gave_way += 1
            if victim == r:
                return budget, gave_way
        add_chunk(st, t, s, r, new, decode)
        budget -= new
        position += 1
    return budget, gave_way


@jit
def admit_one(f: Any, st: State, t: int, s: int, budget: int, now: float) -> int:
    """Admit the first in line; returns the tokens it computes, 0 if it must wait."""
    r = st.heap[t, 0]
    hits = n_hits(f, st, t, r)
    cached = max(st.rq[r].computed, hits * f.block_tokens)
    known = st.rq[r].isl + st.rq[r].generated
    left = known - cached
    if not f.chunked and left > budget and st.ts[t, s].chunk_n > 0:
        return 0
    decode = st.rq[r].generated > 0 and left == 1
    new = f.q_tokens if decode else (min(left, budget) if f.chunked else left)
    asked = room(f, st, r, cached, new, decode)
    if not can_admit(f, st, t, r, hits, max(asked, known) if f.reserve else asked):
        return 0
    pop_waiting(st, t)
    st.rq[r].hit += hits * f.block_tokens
    share(f, st, t, r, hits)
    st.rq[r].computed = cached
    if st.rq[r].admitted_s != st.rq[r].admitted_s:
        st.rq[r].admitted_s = now
    st.ch[t, s, st.ts[t, s].run_n].running = r
    st.ts[t, s].run_n += 1
    grow(f, st, t, r, asked)
    add_chunk(st, t, s, r, new, decode)
    return int(new)


@jit
def seats(f: Any, st: State, t: int, s: int) -> int:
    """Requests that a micro-batch may hold: its even share of those there are."""
    if f.pp == 1:
        return int(f.max_seqs)
    total = st.tg[t].heap_n
    for slot in range(f.pp):
        total += st.ts[t, slot].run_n
    share_of = min(-(-total // f.pp), -(-f.max_seqs // f.pp))
    return int(max(share_of, st.ts[t, s].run_n))


@jit
def admit(f: Any, st: State, t: int, s: int, budget: int, now: float) -> int:
    """Admit waiting requests while budget, places and blocks last; returns how many."""
    most, admitted = seats(f, st, t, s), 0
    while budget > 0 and st.ts[t, s].run_n < most and st.tg[t].heap_n > 0:
        new = admit_one(f, st, t, s, budget, now)
        if new == 0:
            break
        budget -= new
        admitted += 1
    return admitted


@jit
def plan_once(f: Any, st: State, t: int, s: int, now: float) -> tuple[int, int]:
    """Form the batch of one slot on one rank; returns how many were admitted and gave way."""
    st.ts[t, s].chunk_n = 0
    st.tg[t].n_decode = st.tg[t].context = st.tg[t].n_chunks = st.tg[t].new = 0
    if f.empty_only:
        if st.ts[t, s].run_n > 0:
            return 0, continue_running(f, st, t, s, NO_LIMIT_TOKENS)[1]
        return admit(f, st, t, s, NO_LIMIT_TOKENS, now), 0
    if f.decode_first:
        budget, gave_way = continue_running(f, st, t, s, f.max_tokens)
        return (admit(f, st, t, s, budget, now) if gave_way == 0 else 0), gave_way
    admitted = admit(f, st, t, s, f.max_tokens, now)
    if admitted > 0:
        return admitted, 0
    return 0, continue_running(f, st, t, s, f.max_tokens)[1]


@jit
def plan(f: Any, st: State, t: int, s: int, now: float) -> bool:
    """Form the batch of one slot on one rank; True if the next would be the same, one token on."""
    admitted, gave_way = plan_once(f, st, t, s, now)
    if gave_way > 0 and st.ts[t, s].chunk_n == 0:
        plan_once(f, st, t, s, now)
    if admitted + gave_way > 0 or st.ts[t, s].chunk_n != st.ts[t, s].run_n:
        return False
    return bool(st.tg[t].n_chunks == 0)
