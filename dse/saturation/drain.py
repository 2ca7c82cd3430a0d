"""The ends of a run: all requests at once at its start, and a batch that empties at its end."""

from dataclasses import dataclass

import numpy as np

from dse.cost.tables import Array
from dse.saturation.cycle import Cycle
from dse.saturation.lane import Lane

DRAIN_AT = (0.125, 0.375, 0.625, 0.875)


@dataclass(frozen=True, slots=True)
class Drain:
    """The end of a run: `extra_s` beyond its share of steady work, `share` of the decode tokens
    that fall into it, and their mean `tpot_s`; `first_s` is what prompts spare the decodes of the
    first wave in lock-step.
    """

    extra_s: Array | float
    share: Array | float
    tpot_s: Array | float
    first_s: Array | float


def drain_of(lane: Lane, cycle: Cycle) -> Drain:
    """How a run ends: in lock-step with a wave that may be partial; in a stream with ever fewer
    requests, the longest last.

    `N·(1 − x)^k` of them are left at time `x` of the drain, with `k` such that the decode steps
    left are right; the time is integrated over `DRAIN_AT`. The longest of N outputs stands
    0.85·√(2·ln N) deviations out, log-normally.
    """
    if not np.isfinite(lane.n_requests).any():
        return Drain(0.0, 0.0, 0.0, 0.0)
    n, steps = np.maximum(cycle.n_decode, 1.0), lane.decode_steps
    waves = np.where(np.isfinite(lane.n_requests), lane.n_requests, 1e9) / lane.most
    residual = (1.0 + lane.cv2) / 2.0
    left = residual + np.clip(2.0 - waves, 0.0, 1.0) * np.maximum(1.0 - residual, 0.0)
    variance = np.log1p(lane.cv2)
    reach = 0.85 * np.sqrt(2.0 * np.log(n) * variance) - variance / 2.0
    longest = np.maximum(np.exp(reach), 1.02 * left)
    steepness = longest / left - 1.0
    alive = [np.maximum(n * (1.0 - x) ** steepness, 1.0) for x in DRAIN_AT]
    each_s = [lane.decode_step_s(count) for count in alive]
    drain_s = steps * longest * sum(each_s) / len(DRAIN_AT)
    weighted = sum(a * t for a, t in zip(alive, each_s, strict=True)) / sum(alive)
    tokens_s = np.where(cycle.is_full, cycle.mixed_s * lane.q / lane.budget, cycle.decode_s / n)
    drained = drain_s - n * left * steps * tokens_s
    partial = (np.ceil(waves - 1e-9) - waves) * steps * each_s[-1]
    drifted = lane.drifted(cycle.is_full)
    extra = (1.0 - drifted) * partial + drifted * np.where(n > 1.5, np.maximum(drained, 0.0), 0.0)
    share = drifted * np.minimum(n * left / lane.n_requests, 1.0)
    # No prompt interrupts the drain, but the first N prompts meet half as many decodes.
    half_met = np.minimum(n / lane.n_requests, 1.0) / 2.0
    interrupted_s = np.maximum(cycle.tpot_s - cycle.decode_s, 0.0)
    prompts_s = np.maximum(share - half_met, 0.0) / np.maximum(share, 1e-9) * interrupted_s
    tpot_s = np.minimum(np.asarray(weighted) + prompts_s, cycle.tpot_s)
    return Drain(extra, share, tpot_s, (1.0 - drifted) * half_met * interrupted_s)


def burst_s(lane: Lane, cycle: Cycle) -> Array:
    """Mean wait of the run's first requests, which all arrive at once."""
    first = np.minimum(lane.in_flight, lane.most)
    wait_s = first * lane.prompt / lane.budget * cycle.mixed_s / 2.0
    return np.asarray(np.minimum(first / lane.n_requests, 1.0) * wait_s)


def queue_s(lane: Lane, cycle: Cycle) -> Array:
    """Mean wait for a place: of the first requests those beyond the places wait for one another,
    each later one for a full queue.
    """
    queue = np.maximum(lane.in_flight - lane.most, 0.0)
    first = np.minimum(lane.in_flight / lane.n_requests, 1.0)
    share = 1.0 - first + first * queue / lane.in_flight / 2.0
    return np.asarray(queue / cycle.req_per_s * share)
