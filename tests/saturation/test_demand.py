"""Moments of length distributions, and loads of workloads."""

import pytest

from dse.base.errors import UserError
from dse.saturation.demand import load_of, moments
from dse.serving.arrivals import AllAtOnce, ClosedLoop, Poisson, Trace, TraceRequest
from dse.serving.lengths import Constant, Lognormal, Uniform
from dse.serving.workload import Workload


def workload(arrivals, **changes):
    given = {"isl": Constant(n_tokens=100), "osl": Uniform(low_tokens=80, high_tokens=120)}
    return Workload(arrivals=arrivals, n_requests=50, **given | changes)


def test_moments():
    assert moments(Constant(n_tokens=7)) == (7.0, 0.0)
    # Whole numbers from 80 to 120: variance (41² − 1)/12.
    assert moments(Uniform(low_tokens=80, high_tokens=120)).mean == pytest.approx(100, rel=0.01)
    assert moments(Uniform(low_tokens=80, high_tokens=120)).cv2 == pytest.approx(
        140 / 1e4, rel=0.02
    )
    assert moments(Lognormal(mean_tokens=1000, cv=0.5)).cv2 == pytest.approx(0.25, rel=0.1)


def test_a_closed_loop_brings_its_concurrency():
    load = load_of(workload(ClosedLoop(concurrency=8)))
    assert (load.concurrency, load.n_requests) == (8.0, 50.0)
    assert load_of(workload(ClosedLoop(concurrency=8)), 16).concurrency == 16.0


def test_an_offline_job_is_in_flight_at_once():
    assert load_of(workload(AllAtOnce())).concurrency == 50.0


def test_a_rate_needs_a_concurrency():
    with pytest.raises(UserError, match="rate"):
        load_of(workload(Poisson(req_per_s=3.0)))
    assert load_of(workload(Poisson(req_per_s=3.0)), 4).concurrency == 4.0


def test_shared_prefixes_hit_where_there_is_a_cache():
    shared = workload(AllAtOnce(), shared_prefix_tokens=60)
    assert load_of(shared).cached_tokens == 60.0
    assert load_of(shared, prefix_caching=False).cached_tokens == 0.0


def test_a_trace_brings_its_lengths():
    rows = tuple(TraceRequest(0.0, isl, osl) for isl, osl in ((10, 100), (30, 300)))
    load = load_of(workload(Trace(file="t", rows=rows), isl=None, osl=None), 2)
    assert (load.isl_tokens, load.osl_tokens, load.osl_cv2) == (20.0, 200.0, 0.25)
    with pytest.raises(UserError, match="not read"):
        load_of(workload(Trace(file="t"), isl=None, osl=None), 2)
