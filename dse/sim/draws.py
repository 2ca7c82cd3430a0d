"""Lengths and arrivals of requests: drawn by a seed, or as recorded."""

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.serving.arrivals import Trace
from dse.serving.lengths import Lengths, Uniform
from dse.serving.workload import Sessions, Workload
from dse.sim._cache import is_compiled

# From so many requests on compiled code draws them; words that a request takes, at most, but for
# one run in very many: 2 of its own and a shuffle's, which takes 1.4 on average.
MANY, WORDS = 4096, 4

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A row a request: see `dse.sim.traffic.Requests`; `arrival_s` of a later turn says nothing."""

    arrival_s: Floats
    isl_tokens: Ints
    osl_tokens: Ints
    follows: Ints
    think_s: Floats
    session: Ints
    priority: Ints


def drawn(workload: Workload, lengths: Random, gaps: Random, wanted: int) -> Drawn:
    """`wanted` requests of a workload that is no trace; each generator draws what it is named for,
    in an order that recorded results depend on.
    """
    assert workload.isl is not None
    assert workload.osl is not None
    if workload.sessions is not None:
        return _conversations(workload, workload.sessions, lengths, gaps, wanted)
    arrival_s = np.array(workload.arrivals.times(wanted, gaps), dtype=np.float64)
    of_isl, of_osl = _spread_evenly(wanted, workload.n_requests, lengths)
    return Drawn(
        arrival_s=arrival_s,
        isl_tokens=np.maximum(tokens_at(workload.isl, of_isl), workload.shared_prefix_tokens + 1),
        osl_tokens=tokens_at(workload.osl, of_osl),
        follows=np.full(wanted, -1),
        think_s=np.zeros(wanted),
        session=np.full(wanted, -1),
        priority=np.zeros(wanted, dtype=np.int64),
    )


def _spread_evenly(wanted: int, n_strata: int, random: Random) -> tuple[Floats, Floats]:
    """Two quantiles for each of `wanted` requests: in any `n_strata` from the first on, one of each
    kind lies in each of as many equal strata, in random order.

    Each seed then asks nearly the same number of tokens; the order of lengths stays random.
    """
    rounds = [
        (_stratified(n_strata, random), _stratified(n_strata, random))
        for _ in range(-(-wanted // n_strata))
    ]
    one, other = (np.concatenate([np.empty(0), *each]) for each in zip(*rounds, strict=True))
    return one[:wanted], other[:wanted]


def _stratified(n_strata: int, random: Random) -> Floats:
    found = _many(n_strata, random) if n_strata >= MANY and is_compiled() else None
    if found is None:
        strata = np.array(shuffled(n_strata, random), dtype=np.float64)
        found = strata, np.array([random.random() for _ in range(n_strata)])
    quantiles: Floats = (found[0] + found[1]) / n_strata
    return quantiles


def _many(n: int, random: Random) -> tuple[Floats, Floats] | None:
    """What `shuffled` and then `n` calls of `random()` give, and `random` left as by these: its
    words (Matsumoto and Nishimura 1998) are drawn at once. None where a shuffle takes more.
    """
    from dse.sim._shuffle import shuffle

    version, (*key, place), spare = random.getstate()
    at = {"key": np.array(key, dtype=np.uint32), "pos": place}
    state: Any = {"bit_generator": "MT19937", "state": at}
    words = np.random.MT19937()
    words.state = state
    raw = words.random_raw(WORDS * n).view(np.int64)
    found = np.arange(n)
    taken = shuffle(found, raw)
    last = taken + 2 * n
    if taken < 0 or last > len(raw):
        return None
    high, low = raw[taken:last:2] >> 5, raw[taken + 1 : last : 2] >> 6
    words.state = state
    words.random_raw(last, output=False)
    after: Any = words.state["state"]
    random.setstate((version, (*after["key"].tolist(), after["pos"]), spare))
    return found.astype(np.float64), (high * 2.0**26 + low) / 2.0**53


def tokens_at(lengths: Lengths, quantiles: Floats) -> Ints:
    """`lengths.at` of each quantile."""
    if isinstance(lengths, Uniform):
        width = lengths.high_tokens - lengths.low_tokens + 1
        return lengths.low_tokens + (quantiles * width).astype(np.int64)
    return np.array([lengths.at(each) for each in quantiles.tolist()], dtype=np.int64)


def shuffled(n: int, random: Random) -> list[int]:
    """`Random.shuffle` of the numbers below `n`, without its calls."""
    found, bits = list(range(n)), random.getrandbits
    for i in range(n - 1, 0, -1):
        width = (i + 1).bit_length()
        j = bits(width)
        while j > i:
            j = bits(width)
        found[i], found[j] = found[j], found[i]
    return found


def _conversations(
    workload: Workload, sessions: Sessions, lengths: Random, gaps: Random, wanted: int
) -> Drawn:
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
    isl, osl, follows, session = np.array(found, dtype=np.int64).T.copy()
    starts = np.array(workload.arrivals.times(n_sessions, gaps), dtype=np.float64)
    return Drawn(
        arrival_s=starts[session],
        isl_tokens=isl,
        osl_tokens=osl,
        follows=follows,
        think_s=np.full(len(found), sessions.think_s, dtype=np.float64),
        session=session,
        priority=np.zeros(len(found), dtype=np.int64),
    )


def recorded(trace: Trace, wanted: int) -> Drawn:
    """The first `wanted` requests of a trace; UserError where it was not read."""
    trace.times(0, Random(0))
    kept = trace.rows[:wanted]
    numbers: dict[str, int] = {}
    sessions = [
        numbers.setdefault(row.session, len(numbers)) if row.session else -1 for row in kept
    ]
    return Drawn(
        arrival_s=np.array([row.arrival_s for row in kept], dtype=np.float64),
        isl_tokens=np.array([row.isl_tokens for row in kept], dtype=np.int64),
        osl_tokens=np.array([row.osl_tokens for row in kept], dtype=np.int64),
        follows=np.full(len(kept), -1),
        think_s=np.zeros(len(kept)),
        session=np.array(sessions, dtype=np.int64),
        priority=np.array([row.priority for row in kept], dtype=np.int64),
    )
