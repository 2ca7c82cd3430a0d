"""Compiled KV pools: units counted, and content keys in a list of evictable blocks.

Blocks have no numbers here. A free block with content is a node of its own (its key); free blocks
without stand in runs. Nodes are linked in order of eviction between the sentinel's `after` (next to
go) and `before` (last to go).
"""

from typing import Any

from dse.sim._jit import inline, jit
from dse.sim._state import State


@inline
def units_of(f: Any, st: State, tokens: int) -> int:
    """Units of a request with `tokens` tokens in the cache."""
    if f.uniform:
        return int(-(-tokens // f.block_tokens))
    if tokens == 0:
        return 0
    block = f.block_tokens
    total = f.fixed_bytes + f.full_bytes * float(-(-tokens // block) * block)
    for i in range(f.n_windows):
        seen = min(tokens, st.windows[f.pool, i].tokens)
        total += st.windows[f.pool, i].bytes * float(-(-seen // block) * block)
    return int(total)


@jit
def unlink(st: State, t: int, node: int) -> None:
    """Take a node out of the list."""
    left, right = st.nd[t, node].before, st.nd[t, node].after
    st.nd[t, left].after = right
    st.nd[t, right].before = left


@jit
def retire(st: State, t: int, node: int) -> None:
    """Take an empty run out of the list and keep its node for another."""
    unlink(st, t, node)
    st.nd[t, st.tg[t].spare_n].spare = node
    st.tg[t].spare_n += 1


@jit
def append(f: Any, st: State, t: int, node: int) -> None:
    """Put a node last in the list."""
    end = f.end
    last = st.nd[t, end].before
    st.nd[t, last].after = node
    st.nd[t, node].before = last
    st.nd[t, node].after = end
    st.nd[t, end].before = node


@jit
def append_run(f: Any, st: State, t: int, amount: int) -> None:
    """Put `amount` blocks without content last, joining a run that stands there."""
    if amount == 0:
        return
    last = st.nd[t, f.end].before
    if f.n_keys <= last < f.end:
        st.nd[t, last].count += amount
        return
    st.tg[t].spare_n -= 1
    node = st.nd[t, st.tg[t].spare_n].spare
    st.nd[t, node].count = amount
    append(f, st, t, node)


@jit
def take(f: Any, st: State, t: int, amount: int) -> None:
    """Take `amount` free blocks, those next to go first, and forget their content."""
    st.tg[t].free -= amount
    if f.n_keys == 0:
        return
    end = f.end
    while amount > 0:
        node = st.nd[t, end].after
        if node < f.n_keys:
            st.nd[t, node].present = False
            unlink(st, t, node)
            amount -= 1
            continue
        taken = min(amount, st.nd[t, node].count)
        st.nd[t, node].count -= taken
        amount -= taken
        if st.nd[t, node].count == 0:
            retire(st, t, node)


@jit
def hold(f: Any, st: State, t: int, key: int) -> None:
    """Share a block with content; runs that it stood between become one."""
    if st.nd[t, key].holders == 0:
        left, right = st.nd[t, key].before, st.nd[t, key].after
        unlink(st, t, key)
        st.tg[t].free -= 1
        if f.n_keys <= left < f.end and f.n_keys <= right < f.end:
            st.nd[t, left].count += st.nd[t, right].count
            retire(st, t, right)
    st.nd[t, key].holders += 1


@jit
def n_hits(f: Any, st: State, t: int, r: int) -> int:
    """Leading blocks of a waiting request that are cached; the last token is always computed."""
    if f.n_keys == 0:
        return 0
    most = min(st.rq[r].key_count, (st.rq[r].isl + st.rq[r].generated - 1) // f.block_tokens)
    start, hits = st.rq[r].key_start, 0
    while hits < most and st.nd[t, st.keys[start + hits]].present:
        hits += 1
    return hits


@jit
def can_admit(f: Any, st: State, t: int, r: int, hits: int, tokens: int) -> bool:
    """Whether a waiting request finds room for `tokens` tokens."""
    evictable = 0
    for i in range(hits):
        if st.nd[t, st.keys[st.rq[r].key_start + i]].holders == 0:
            evictable += 1
    return bool(units_of(f, st, tokens) - hits <= st.tg[t].free - evictable)


@jit
def share(f: Any, st: State, t: int, r: int, hits: int) -> None:
    """Give a request the first `hits` blocks of its content."""
    for i in range(hits):
        hold(f, st, t, st.keys[st.rq[r].key_start + i])
    st.rq[r].held_keys = hits
    st.rq[r].held = hits


@inline
def grow(f: Any, st: State, t: int, r: int, tokens: int) -> bool:
    """Give a request room for `tokens` tokens; False if there is none."""
    if f.uniform and tokens <= st.rq[r].held * f.block_tokens:
        return True
    missing = units_of(f, st, tokens) - st.rq[r].held
    if missing <= 0:
        return True
    if missing > st.tg[t].free:
        return False
    take(f, st, t, missing)
    st.rq[r].held += missing
    return True


@inline
def publish(f: Any, st: State, t: int, r: int) -> None:
    """Let others share the full blocks with content that a request has computed."""
    known = st.rq[r].held_keys
    if f.n_keys == 0:
        return
    if known >= st.rq[r].key_count or st.rq[r].computed < (known + 1) * f.block_tokens:
        return
    full = min(st.rq[r].key_count, st.rq[r].computed // f.block_tokens)
    for i in range(known, full):
        key = st.keys[st.rq[r].key_start + i]
        if st.nd[t, key].present:
            hold(f, st, t, key)
            st.tg[t].free += 1
            append_run(f, st, t, 1)
        else:
            st.nd[t, key].present = True
            st.nd[t, key].holders = 1
    st.rq[r].held_keys = full


@jit
def release(f: Any, st: State, t: int, r: int) -> None:
    """Take back all that a request holds, its tail first to go."""
    private = st.rq[r].held - st.rq[r].held_keys
    st.tg[t].free += private
    if f.n_keys > 0:
        append_run(f, st, t, private)
    for back in range(st.rq[r].held_keys):
        key = st.keys[st.rq[r].key_start + st.rq[r].held_keys - 1 - back]
        st.nd[t, key].holders -= 1
        if st.nd[t, key].holders == 0:
            st.tg[t].free += 1
            append(f, st, t, key)
    st.rq[r].held = 0
    st.rq[r].held_keys = 0


@jit
def fresh_lists(f: Any, st: State) -> None:
    """Put every block of every rank, without content, in one run."""
    for t in range(f.first_target, f.first_target + f.n_targets):
        st.tg[t].free = f.n_units
        if f.n_keys == 0:
            continue
        first = f.n_keys
        st.nd[t, first].count = f.n_units
        st.nd[t, f.end].before = st.nd[t, f.end].after = first
        st.nd[t, first].before = st.nd[t, first].after = f.end
        for i in range(first + 1):
            st.nd[t, i].spare = first + 1 + i
        st.tg[t].spare_n = first + 1
