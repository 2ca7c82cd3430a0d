"""Workload → requests: the same lists for every deployment."""

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.base.digest import digest
from dse.serving.arrivals import Trace, TraceRequest
from dse.serving.workload import Sessions, Workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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

    Longer runs (`n_requests`) of a replicate begin with the shorter ones' lengths.
    """
    number = int(digest(("requests", workload, seed)), 16)
    wanted = workload.n_requests if n_requests is None else n_requests
    if isinstance(workload.arrivals, Trace):
        found = _from_trace(workload.arrivals, wanted)
    else:
        found = _drawn(workload, Random(number), Random(number + 1), wanted)
    n = len(found)
    shared = workload.shared_prefix_tokens
    roots = np.cumsum(found["follows"] < 0) - 1
    return Requests(
        arrival_s=np.where(found["follows"] < 0, found["arrival_s"], np.nan),
        isl_tokens=found["isl_tokens"],
        osl_tokens=found["osl_tokens"],
        follows=found["follows"],
        think_s=found["think_s"],
        prefix=roots % workload.n_prefixes if shared else np.full(n, -1),
        prefix_tokens=shared,
        session=found["session"],
        priority=found["priority"],
        hash_ids=_hashes(workload),
        hash_tokens=_hash_tokens(workload),
        concurrency=workload.arrivals.concurrency_limit or 0,
        seed=number & ((1 << 63) - 1),
    )


_ROW = np.dtype(
    [
        ("arrival_s", "f8"),
        ("isl_tokens", "i8"),
        ("osl_tokens", "i8"),
        ("follows", "i8"),
        ("think_s", "f8"),
        ("session", "i8"),
        ("priority", "i8"),
    ]
)
Rows = Any


def _recorded(workload: Workload) -> tuple[TraceRequest, ...]:
    arrivals = workload.arrivals
    return arrivals.rows[: workload.n_requests] if isinstance(arrivals, Trace) else ()


def _hashes(workload: Workload) -> tuple[tuple[int, ...], ...]:
    rows = _recorded(workload)
    return tuple(row.hash_ids for row in rows) if any(row.hash_ids for row in rows) else ()


def _hash_tokens(workload: Workload) -> int:
    return max((row.hash_tokens for row in _recorded(workload)), default=1)


def _drawn(workload: Workload, lengths: Random, gaps: Random, wanted: int) -> Rows:
    assert workload.isl is not None
    assert workload.osl is not None
    if workload.sessions is not None:
        return _conversations(workload, workload.sessions, lengths, gaps, wanted)
    rows = np.zeros(wanted, dtype=_ROW)
    rows["follows"] = rows["session"] = -1
    rows["arrival_s"] = workload.arrivals.times(wanted, gaps)
    drawn = _spread_evenly(wanted, workload.n_requests, lengths)
    rows["isl_tokens"] = [workload.isl.at(quantile) for quantile, _ in drawn]
    rows["osl_tokens"] = [workload.osl.at(quantile) for _, quantile in drawn]
    rows["isl_tokens"] = np.maximum(rows["isl_tokens"], workload.shared_prefix_tokens + 1)
    return rows


def _spread_evenly(wanted: int, n_strata: int, random: Random) -> list[tuple[float, float]]:
    """Two quantiles for each of `wanted` requests: in any `n_strata` from the first on, one of each
    kind lies in each of as many equal strata, in random order.

    Each seed then asks nearly the same number of tokens; the order of lengths stays random.
    """
    found: list[tuple[float, float]] = []
    while len(found) < wanted:
        columns = []
        for _ in range(2):
            strata = list(range(n_strata))
            random.shuffle(strata)
            columns.append([(stratum + random.random()) / n_strata for stratum in strata])
        found += zip(*columns, strict=True)
    return found[:wanted]


def _conversations(
    workload: Workload, sessions: Sessions, lengths: Random, gaps: Random, wanted: int
) -> Rows:
    assert workload.isl is not None
    assert workload.osl is not None
    found: list[tuple[int, int, int, int]] = []
    n_sessions = 0
    while len(found) < wanted:
        turns = sessions.turns.at(lengths.random())
        said, before = workload.shared_prefix_tokens, -1
        for _ in range(min(turns, wanted - len(found))):
            new, answer = workload.isl.at(lengths.random()), workload.osl.at(lengths.random())
            found.append((said + new, answer, before, n_sessions))
            said, before = said + new + answer, len(found) - 1
        n_sessions += 1
    rows = np.zeros(len(found), dtype=_ROW)
    columns = np.array(found, dtype=np.int64).T
    for name, column in zip(
        ("isl_tokens", "osl_tokens", "follows", "session"), columns, strict=True
    ):
        rows[name] = column
    rows["think_s"] = sessions.think_s
    starts = np.array(workload.arrivals.times(n_sessions, gaps))
    rows["arrival_s"] = starts[rows["session"]]
    return rows


def _from_trace(trace: Trace, wanted: int) -> Rows:
    kept: tuple[TraceRequest, ...] = trace.rows[:wanted]
    trace.times(0, Random(0))
    rows = np.zeros(len(kept), dtype=_ROW)
    rows["follows"] = rows["session"] = -1
    numbers: dict[str, int] = {}
    for i, row in enumerate(kept):
        session = numbers.setdefault(row.session, len(numbers)) if row.session else -1
        rows[i] = (row.arrival_s, row.isl_tokens, row.osl_tokens, -1, 0.0, session, row.priority)
    return rows


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
