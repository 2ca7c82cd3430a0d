"""Which requests show the steady state: warm-up and drain cut by rule."""

import numpy as np
from numpy.typing import NDArray

from dse.sim.outcome import Outcome
from dse.sim.traffic import Requests

BATCH = 5


def steady(requests: Requests, outcome: Outcome) -> NDArray[np.bool_]:
    """Mark the requests after the warm-up and, in a closed loop, before the drain.

    Warm-up is cut by MSER-5 on E2E in order of arrival (White, Simulation 69, 1997): the cut,
    within the first half, that leaves the smallest standard error of batch means of five. A closed
    loop drains from its last arrival on.
    """
    order = np.argsort(outcome.asked_s, kind="stable")
    e2e = (outcome.finish_s - outcome.asked_s)[order]
    kept = np.zeros(len(order), dtype=bool)
    kept[order[warm_up(e2e) :]] = True
    if requests.concurrency:
        before_drain = outcome.finish_s <= outcome.asked_s.max()
        kept = kept & before_drain if np.any(kept & before_drain) else kept
    return kept


def warm_up(values: NDArray[np.float64]) -> int:
    """How many leading values MSER-5 cuts."""
    n_batches = len(values) // BATCH
    if n_batches < 4:
        return 0
    means = values[: n_batches * BATCH].reshape(n_batches, BATCH).mean(axis=1)
    counts = np.arange(n_batches, 0, -1, dtype=float)
    tail_sum = np.cumsum(means[::-1])[::-1]
    tail_square = np.cumsum((means**2)[::-1])[::-1]
    variance = np.maximum(tail_square - tail_sum**2 / counts, 0.0)
    half = n_batches // 2
    return int(np.argmin((variance / counts**2)[: half + 1])) * BATCH
