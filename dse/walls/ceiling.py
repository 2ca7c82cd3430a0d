"""Ceilings of one deployment, searched over batches: goodput within an SLO, and the first wall."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.cost.account import decode_floor, tokens_computed
from dse.cost.floor import StepFloor
from dse.serving.deployment import Deployment, Pool

Array = NDArray[np.float64]
MOST_REQUESTS = 2**20
"""Where the search for a concurrency that breaks a bound ends."""
ASKED_AT_ONCE = 33
"""An array of so many batches is priced in little more time than one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """The smallest number of requests in one replica at which `wall` alone breaks the TPOT bound;
    for `kv_capacity`, the most that it holds.
    """

    wall: str
    concurrency: int


def goodput_ceiling(
    deployment: Deployment,
    pool: Pool,
    *,
    context_tokens: float,
    requests_max: float,
    slo_tpot_s: float | None = None,
) -> float:
    """Output tokens/s of one replica that decodes at most `requests_max` requests of mean context
    `context_tokens`: the maximum of ΣB/Σt over mixtures of two batches whose tokens keep the bound.

    Two values suffice, as there is one constraint; one value would be unsound, because the union of
    experts makes `t` concave.
    """
    if requests_max < 1:
        return 0.0
    batches = batches_up_to(requests_max)
    floor = decode_floor(deployment, pool, batches, context_tokens)
    return best_rate(floor, batches, pool.layout.pp, tokens_computed(deployment), slo_tpot_s)


def best_rate(
    floor: StepFloor, batches: Array, pp: int, per_step: int, slo_tpot_s: float | None
) -> float:
    """`goodput_ceiling` of a replica of `pp` stages that takes `floor` for a step over each of
    `batches` requests, of which each yields `per_step` tokens at most.
    """
    latency, cycle = step_times(floor, batches, pp)
    if slo_tpot_s is None:
        return float(np.max(batches / cycle)) * per_step
    over = batches * (latency - slo_tpot_s * per_step)
    return _best_mixture(batches, cycle, over) * per_step


def step_times(floor: StepFloor, batches: Array, pp: int) -> tuple[Array, Array]:
    """`(latency, cycle)` seconds of steps over `batches` requests: until a token is out, and until
    every request of the pipeline has one.
    """
    latency = np.broadcast_to(np.asarray(floor.t_opt_s, dtype=float), batches.shape)
    occupied = np.broadcast_to(np.asarray(floor.occupancy_s, dtype=float), batches.shape)
    return latency, np.maximum(latency, pp * occupied)


def wall_order(
    deployment: Deployment,
    pool: Pool,
    *,
    context_tokens: float,
    requests_max: int,
    slo_tpot_s: float | None,
) -> tuple[Break, ...]:
    """Which wall binds first as load grows, by the concurrency of one replica at which it does."""
    found = [Break(wall="kv_capacity", concurrency=requests_max)]
    if slo_tpot_s is not None:
        bound = slo_tpot_s * tokens_computed(deployment)
        for wall in ("hbm", "flop", "net"):
            # A default binds the name: the closure is called within this round.
            def breaks(n: Array, wall: str = wall) -> NDArray[np.bool_]:
                floor = decode_floor(deployment, pool, n, context_tokens)
                seconds = np.asarray(getattr(floor, f"t_{wall}_s"), dtype=float)
                return np.broadcast_to(seconds, n.shape) > bound

            first = first_true(breaks, MOST_REQUESTS)
            if first is not None:
                found.append(Break(wall=wall, concurrency=first))
    return tuple(sorted(found, key=lambda each: each.concurrency))


def first_true(holds: Callable[[Array], NDArray[np.bool_]], most: int) -> int | None:
    """The smallest n from 1 to `most`, a power of two, at which a monotone `holds` is true; None if
    it never is. `holds` is asked of many at once.
    """
    low, asked = 0, np.exp2(np.arange(most.bit_length(), dtype=np.float64))
    while True:
        is_true = np.asarray(holds(asked))
        if not is_true.any():
            return None
        index = int(is_true.argmax())
        low, high = int(asked[index - 1]) if index else low, int(asked[index])
        if high - low == 1:
            return high
        asked = np.unique(np.linspace(low + 1, high, ASKED_AT_ONCE).round())


def batches_up_to(requests_max: float) -> Array:
    """Every batch up to 128, then 64 to an octave, and the greatest."""
    most = float(requests_max)
    dense = np.arange(1.0, min(most, 128.0) + 1.0)
    octaves = max(0.0, np.log2(max(most, 1.0)) - 7.0)
    coarse = np.round(2.0 ** (7.0 + np.arange(0.0, octaves, 1.0 / 64.0)))
    return np.unique([*dense, *coarse[coarse <= most], most])


def _best_mixture(batches: Array, cycle: Array, over: Array) -> float:
    """The best ΣB/Σt of two batches mixed so that Σ over ≤ 0; 0 where even one request is late."""
    fits = over <= 0
    if not fits.any():
        return 0.0
    best = float(np.max(batches[fits] / cycle[fits]))
    if fits.all():
        return best
    spare, excess = -over[fits][:, None], over[~fits][None, :]
    share = spare / (spare + excess)
    mixed = (1.0 - share) * batches[fits][:, None] + share * batches[~fits][None, :]
    time = (1.0 - share) * cycle[fits][:, None] + share * cycle[~fits][None, :]
    return max(best, float(np.max(mixed / time)))
