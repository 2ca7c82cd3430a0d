"""TPOT of a closed loop from below: all that are in flight decode, but for what is counted here."""

import numpy as np

from dse.search.envelope import Hull, rising
from dse.search.offered import Offered
from dse.search.steps import Steps
from dse.search.work import Case
from dse.serving.schedulers import ChunkedPrefill
from dse.sim.spec import RunSpec


def closed_loop_tpot_s(spec: RunSpec, case: Case, latency: Steps, offered: Offered) -> float:
    """Mean TPOT over requests in seconds, at least; 0 where the argument does not hold.

    A step in which somebody waits for the token budget is full and takes as long as the whole
    budget. In any other all requests in flight decode, but those that are prefilling in it or on
    their way to the engine: at most `absent` steps for each request. The j-th last to finish has j
    requests in flight to its end. Steps weigh 1 / (OSL − 1) for each request that decodes in them.
    """
    if not _holds(spec, case, offered):
        return 0.0
    pool = case.pool
    running, is_capped = _running(case)
    batches = np.unique(np.concatenate([latency.n[latency.n < running], [running]]))
    lowest = np.full(len(batches), latency.contexts[0])
    hull = Hull.below(batches, rising(latency.seconds(batches, lowest)))
    if hull.y[0] <= 0.0:
        return 0.0  # nothing is known without what contexts add
    absent = 1.0 + pool.pp * (1.0 + pool.arrival_s / float(hull.y[0]))
    n_last = case.n_in_flight
    last = np.minimum(np.arange(1.0, n_last + 1.0), running)
    share = n_last / offered.n
    full = latency.full_s()
    steady = min(float(hull.at(np.array([running]))[0]), full)
    ending = float(np.minimum(hull.at(last), full).mean())
    missed = absent * case.n_in_flight / (float(offered.osl.min()) - 1.0)
    slope = float(hull.slope(np.array([running]))[0]) * (pool.dp if is_capped else 1)
    found = (1.0 - share) * steady + share * ending - slope * missed
    if pool.dp == 1:
        found += _grown_context_s(latency, offered, running, absent, n_last)
    return max(found, 0.0)


def _grown_context_s(
    latency: Steps, offered: Offered, running: float, absent: float, n_last: float
) -> float:
    """What contexts beyond the lowest add: each read delays all that decode with its request.

    The requests in flight when the last one is asked are left out, the dearest of all for safety.
    """
    low, high = latency.contexts
    steps = offered.osl - 1.0
    beyond = np.sort(steps * (offered.isl - low) + steps * (steps + 1.0) / 2.0)
    kept = beyond[: max(0, offered.n - int(np.ceil(n_last)))]
    longest = float(steps.max())
    seen = float(kept.sum()) / offered.n / longest - absent * (high - low) / longest
    return max(0.0, latency.kv_s * running * seen)


def _holds(spec: RunSpec, case: Case, offered: Offered) -> bool:
    pool = case.pool
    return (
        offered.concurrency > 0
        and offered.is_plain
        and offered.means_cover_all
        and len(spec.pools) == 1
        and pool.n_replicas == 1
        and pool.limits.q_tokens == 1
        and isinstance(pool.scheduler, ChunkedPrefill)
        and bool((offered.osl > 1.0).all())
    )


def _running(case: Case) -> tuple[float, bool]:
    """Requests of a replica's micro-batch that decode when nobody is absent, at least; and whether
    it is seats or KV that bound them.
    """
    pool = case.pool
    longest = int((case.offered.isl + case.offered.osl).max())
    # Whoever waits for KV found less free than it asks for.
    by_kv = pool.kv.n_units // max(1, pool.kv.units_of(longest)) - 2
    offered = case.n_in_flight / pool.dp
    on_rank = min(offered, float(pool.limits.max_seqs), float(by_kv))
    is_capped = on_rank < offered
    if pool.pp > 1:
        on_rank = on_rank / pool.pp - (pool.pp - 1)
    return max(1.0, on_rank * pool.dp), is_capped
