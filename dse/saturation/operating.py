"""Where a deployment may run under an SLO: the state at a rate, a bracket around the best rate."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dse.cost.tables import Array
from dse.saturation.curve import Curves
from dse.saturation.model import Load, Steady, throughput
from dse.serving.slo import SLO

HALVINGS = 26  # of the logarithm of concurrency: finer than 1e-5
MOST_IN_FLIGHT = 1e6
STREAM_CV2 = 1e-3

# A percentile lies above the mean that the model predicts, so the probe starts below the bound; the
# bracket spans what the model's own error and that of the ratio can move it.
TPOT_SHARE = 0.92
TTFT_SHARE = 0.35
SPREAD = 1.3

Mask = NDArray[np.bool_]
Holds = Callable[[Steady], Mask]


class Bracket(NamedTuple):
    """Request rates (req/s): `low` should keep the SLO, `high` break it, `likely` is the guess.

    All are 0 where not even one request in flight keeps it.
    """

    low: Array
    likely: Array
    high: Array


def at_rate(curves: Curves, which: ArrayLike, load: Load, req_per_s: ArrayLike) -> Steady:
    """The steady state at an arrival rate: the concurrency at which as many finish as arrive.

    `load.concurrency` and `load.n_requests` are not read. Where the rate is beyond what the
    deployment can serve, the result is its saturated state: `req_per_s` is then below the rate.
    """
    rate = np.asarray(req_per_s, dtype=float)
    return _steady(curves, which, load, _search(curves, which, load, lambda s: s.req_per_s < rate))


def bracket(curves: Curves, which: ArrayLike, load: Load, slo: SLO) -> Bracket:
    """Rates between which the highest one that keeps `slo` should lie.

    A guide to where a search should probe first, not a bound.
    """
    in_flight = _search(curves, which, load, lambda found: _keeps(found, slo))
    first = _steady(curves, which, load, np.ones_like(in_flight))
    possible = np.where(_keeps(first, slo) & (first.req_per_s > 0), 1.0, 0.0)
    likely = possible * _steady(curves, which, load, in_flight).req_per_s
    return Bracket(likely / SPREAD, likely, likely * SPREAD)


def _keeps(found: Steady, slo: SLO) -> Mask:
    """Whether mean latencies leave the percentiles room; NaN (nothing to bound) does."""
    kept = np.ones(found.req_per_s.shape, dtype=bool)
    bounds = (
        (found.tpot_s, slo.tpot_s, TPOT_SHARE),
        (found.ttft_s, slo.ttft_s, TTFT_SHARE),
        (found.e2e_s, slo.e2e_s, TPOT_SHARE),
    )
    for value, bound, share in bounds:
        if bound is not None:
            kept &= ~(value > share * bound)
    return kept


def _search(curves: Curves, which: ArrayLike, load: Load, go_on: Holds) -> Array:
    """The largest concurrency at which `go_on(steady)` holds, by bisection of its logarithm."""
    parts = (load.isl_tokens, load.osl_tokens, load.cached_tokens, load.osl_cv2)
    shape = np.broadcast_shapes(np.shape(which), *map(np.shape, parts))
    low, high = np.zeros(shape), np.full(shape, np.log(MOST_IN_FLIGHT))
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        holds = go_on(_steady(curves, which, load, np.exp(middle)))
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return np.exp(low)


def _steady(curves: Curves, which: ArrayLike, load: Load, concurrency: Array) -> Steady:
    # Independent arrivals never come in waves, however equal the requests are.
    spread = np.maximum(np.asarray(load.osl_cv2, dtype=float), STREAM_CV2)
    steady = replace(load, concurrency=concurrency, n_requests=np.inf, osl_cv2=spread)
    return throughput(curves, which, steady)
