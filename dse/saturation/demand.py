"""A workload as the saturation model sees it: mean lengths, their spread, and the load."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dse.base.errors import UserError
from dse.saturation.model import Load
from dse.serving.arrivals import Trace
from dse.serving.lengths import Lengths
from dse.serving.workload import Workload

_QUANTILES = 200


class Moments(NamedTuple):
    """Mean tokens and squared coefficient of variation of a length distribution."""

    mean: float
    cv2: float


@lru_cache(maxsize=256)
def moments(lengths: Lengths) -> Moments:
    """The first two moments of `lengths`, from its quantiles."""
    drawn = np.array([lengths.at((i + 0.5) / _QUANTILES) for i in range(_QUANTILES)], dtype=float)
    mean = float(drawn.mean())
    return Moments(mean, float(drawn.var()) / mean**2)


def load_of(
    workload: Workload, concurrency: float | None = None, *, prefix_caching: bool = True
) -> Load:
    """The load of a closed loop or an offline job; `concurrency` replaces its own.

    A workload that arrives at a rate has no concurrency of its own, so it needs the argument (see
    `operating.at_rate`). Turns of a session count as requests without history.
    """
    isl, osl = _lengths(workload)
    arrivals = workload.arrivals
    in_flight = concurrency or arrivals.concurrency_limit
    if in_flight is None and hasattr(arrivals, "req_per_s"):
        raise UserError("the workload arrives at a rate", "give a concurrency, or use `at_rate`")
    shared = min(float(workload.shared_prefix_tokens), isl.mean - 1.0) * prefix_caching
    return Load(
        concurrency=float(in_flight or workload.n_requests),
        isl_tokens=isl.mean,
        osl_tokens=osl.mean,
        cached_tokens=max(shared, 0.0),
        osl_cv2=osl.cv2,
        n_requests=float(workload.n_requests),
    )


def _lengths(workload: Workload) -> tuple[Moments, Moments]:
    if isinstance(workload.arrivals, Trace):
        rows = workload.arrivals.rows
        if not rows:
            raise UserError(f"the trace {workload.arrivals.file} was not read", "read it first")
        return (
            _sample([row.isl_tokens for row in rows]),
            _sample([row.osl_tokens for row in rows]),
        )
    if workload.isl is None or workload.osl is None:
        raise UserError("isl or osl is missing", "give both, or a trace that brings its own")
    return moments(workload.isl), moments(workload.osl)


def _sample(tokens: list[int]) -> Moments:
    drawn = np.array(tokens, dtype=float)
    return Moments(float(drawn.mean()), float(drawn.var() / drawn.mean() ** 2))
