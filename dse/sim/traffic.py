"""Workload → requests: the same lists for every deployment."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from dse.base.digest import digest
from dse.serving.arrivals import Trace, TraceRequest
from dse.serving.workload import Workload
from dse.sim.draws import Floats, Ints, drawn, recorded


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The requests of one replicate, in the order in which they are first asked.

    `arrival_s` is NaN for a turn that waits for the one before: `follows` is that request's index
    (−1 for none) and `think_s` the pause after its answer. `prefix` numbers the shared prefix (−1
    for none) of `prefix_tokens` tokens, `session` the conversation (−1). `hash_ids` names a
    trace's blocks of `hash_tokens` tokens. `concurrency` is that of a closed loop, else 0.
    """

    arrival_s: Floats
    isl_tokens: Ints
    osl_tokens: Ints
    follows: Ints
    think_s: Floats
    prefix: Ints
    prefix_tokens: int
    session: Ints
    priority: Ints
    hash_ids: tuple[tuple[int, ...], ...] = ()
    hash_tokens: int = 512
    concurrency: int = 0
    seed: int = 0

    def __len__(self) -> int:
        return len(self.isl_tokens)

    def take(self, kept: Ints, concurrency: int) -> "Requests":
        """The requests at the indices `kept` (whole sessions), renumbered."""
        renumbered = np.full(len(self) + 1, -1, dtype=np.int64)
        renumbered[kept] = np.arange(len(kept))
        return Requests(
            arrival_s=self.arrival_s[kept],
            isl_tokens=self.isl_tokens[kept],
            osl_tokens=self.osl_tokens[kept],
            follows=renumbered[self.follows[kept]],
            think_s=self.think_s[kept],
            prefix=self.prefix[kept],
            prefix_tokens=self.prefix_tokens,
            session=self.session[kept],
            priority=self.priority[kept],
            hash_ids=tuple(self.hash_ids[i] for i in kept) if self.hash_ids else (),
            hash_tokens=self.hash_tokens,
            concurrency=concurrency,
            seed=self.seed,
        )


def realised_requests(workload: Workload, seed: int, n_requests: int | None = None) -> Requests:
    """The requests that replicate `seed` of `workload` asks, of any deployment.

    Longer runs (`n_requests`) of a replicate begin with the shorter ones' lengths. The same are
    asked of many deployments: the last ones drawn are kept, and nobody may write to their arrays.
    """
    wanted = workload.n_requests if n_requests is None else n_requests
    if isinstance(workload.arrivals, Trace):
        return _realised(workload, seed, wanted)
    return _KEPT.of((workload, seed, wanted), lambda: _realised(workload, seed, wanted))


def _realised(workload: Workload, seed: int, wanted: int) -> Requests:
    number = int(digest(("requests", workload, seed)), 16)
    if isinstance(workload.arrivals, Trace):
        found = recorded(workload.arrivals, wanted)
    else:
        found = drawn(workload, Random(number), Random(number + 1), wanted)
    shared, is_root = workload.shared_prefix_tokens, found.follows < 0
    roots = np.cumsum(is_root) - 1
    return Requests(
        arrival_s=np.where(is_root, found.arrival_s, np.nan),
        isl_tokens=found.isl_tokens,
        osl_tokens=found.osl_tokens,
        follows=found.follows,
        think_s=found.think_s,
        prefix=roots % workload.n_prefixes if shared else np.full(len(roots), -1),
        prefix_tokens=shared,
        session=found.session,
        priority=found.priority,
        hash_ids=_hashes(workload),
        hash_tokens=_hash_tokens(workload),
        concurrency=workload.arrivals.concurrency_limit or 0,
        seed=number & ((1 << 63) - 1),
    )


@dataclass
class _Kept:
    """Requests by what they were drawn for: `most` in all, but for the newest ones."""

    most: int
    _known: OrderedDict[tuple[Any, ...], Requests] = field(default_factory=OrderedDict)

    def of(self, key: tuple[Any, ...], draw: Callable[[], Requests]) -> Requests:
        """Those of `key`, drawn if they are not at hand; what was used longest ago goes first."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        found = self._known[key] = draw()
        for each in vars(found).values():
            if isinstance(each, np.ndarray):
                each.flags.writeable = False
        total = sum(map(len, self._known.values()))
        while total > self.most and len(self._known) > 1:
            total -= len(self._known.popitem(last=False)[1])
        return found


# A request takes 72 bytes.
_KEPT = _Kept(1_000_000)


def _recorded(workload: Workload) -> tuple[TraceRequest, ...]:
    arrivals = workload.arrivals
    return arrivals.rows[: workload.n_requests] if isinstance(arrivals, Trace) else ()


def _hashes(workload: Workload) -> tuple[tuple[int, ...], ...]:
    rows = _recorded(workload)
    return tuple(row.hash_ids for row in rows) if any(row.hash_ids for row in rows) else ()


def _hash_tokens(workload: Workload) -> int:
    return max((row.hash_tokens for row in _recorded(workload)), default=1)


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Content keys of every request's leading blocks: `flat[start[r] : start[r] + count[r]]`."""

    flat: Ints
    start: Ints
    count: Ints
    n_keys: int

    def of(self, index: int) -> tuple[int, ...]:
        """The keys of one request."""
        low = self.start[index]
        return tuple(self.flat[low : low + self.count[index]].tolist())


def content_keys(requests: Requests, block_tokens: int) -> Keys:
    """Number the blocks that two requests may share, for blocks of `block_tokens` tokens.

    A shared prefix shares its whole blocks; the turns of a session share all that was said; a
    trace's hashes share the blocks that they cover whole.
    """
    if not requests.hash_ids and np.all(requests.session < 0):
        return _shared_only(requests, block_tokens)
    blocks = _hashed_blocks if requests.hash_ids else _prefix_blocks
    per_request = blocks(requests, block_tokens)
    count = np.array([len(keys) for keys in per_request], dtype=np.int64)
    flat = np.concatenate([np.array(keys, dtype=np.int64) for keys in per_request])
    known, numbered = np.unique(flat, return_inverse=True)
    return Keys(
        flat=numbered.astype(np.int64), start=np.cumsum(count) - count, count=count,
        n_keys=len(known),
    )  # fmt: skip


def _shared_only(requests: Requests, block_tokens: int) -> Keys:
    """Keys where nothing but whole blocks of a shared prefix is shared."""
    shared = requests.prefix_tokens // block_tokens
    n_prefixes = int(requests.prefix.max(initial=-1)) + 1
    count = np.where(requests.prefix >= 0, shared, 0)
    return Keys(
        flat=np.arange(n_prefixes * shared),
        start=np.maximum(requests.prefix, 0) * shared,
        count=count,
        n_keys=n_prefixes * shared,
    )


def _prefix_blocks(requests: Requests, block_tokens: int) -> list[Ints]:
    shared = requests.prefix_tokens // block_tokens
    last = {int(s): i for i, s in enumerate(requests.session)}
    found, base, starts = [], shared * (int(requests.prefix.max(initial=0)) + 1), {}
    for i, session in enumerate(requests.session.tolist()):
        head = max(int(requests.prefix[i]), 0) * shared + np.arange(shared)
        head = head if requests.prefix[i] >= 0 else head[:0]
        if session < 0:
            found.append(head)
            continue
        total = int(requests.isl_tokens[i] + requests.osl_tokens[i]) // block_tokens
        if session not in starts:
            end = last[session]
            longest = int(requests.isl_tokens[end] + requests.osl_tokens[end]) // block_tokens
            starts[session], base = base, base + max(longest, total)
        own = starts[session] + np.arange(max(0, total - len(head)))
        found.append(np.concatenate([head, own]))
    return found


def _hashed_blocks(requests: Requests, block_tokens: int) -> list[Ints]:
    per_hash = max(1, requests.hash_tokens // block_tokens)
    found = []
    for hashes in requests.hash_ids:
        ids = np.array(hashes, dtype=np.int64)
        found.append((ids[:, None] * per_hash + np.arange(per_hash)[None, :]).ravel())
    return found
