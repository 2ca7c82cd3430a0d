"""Lengths, arrivals and workloads: moments, order, and what a replicate fixes."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from dse.base.source import read_text
from dse.serving.arrivals import (
    AllAtOnce,
    ClosedLoop,
    ConstantRate,
    Gamma,
    Poisson,
    Trace,
    TraceRequest,
)
from dse.serving.lengths import Constant, Histogram, Lengths, Lognormal, Uniform
from dse.serving.workload import Sessions, Workload
from dse.sim.traffic import content_keys, realised_requests

LENGTHS: list[Lengths] = [
    Constant(n_tokens=100),
    Uniform(low_tokens=80, high_tokens=120),
    Lognormal(mean_tokens=100, cv=0.5),
    Histogram(edges=(50, 100, 151), weights=(1.0, 1.0)),
]


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda part: part.kind)
def test_lengths_have_their_mean_and_scale(lengths: Lengths) -> None:
    random = Random(1)
    drawn = [lengths.at(random.random()) for _ in range(20_000)]
    assert min(drawn) >= 1
    assert np.mean(drawn) == pytest.approx(100, rel=0.01)
    assert lengths.mean() == pytest.approx(100, rel=0.01)
    assert lengths.scaled(2.0).mean() == pytest.approx(200, rel=0.02)
    assert lengths.scaled(1e-9).at(0.5) >= 1


def test_lognormal_has_its_spread_and_its_cut() -> None:
    random = Random(2)
    drawn = [Lognormal(mean_tokens=1000, cv=0.8).at(random.random()) for _ in range(50_000)]
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(0.8, rel=0.03)
    assert (
        max(Lognormal(mean_tokens=1000, cv=0.8, max_tokens=1500).at(u) for u in (0.9, 1.0)) == 1500
    )


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [(Poisson(req_per_s=5.0), 1.0), (Gamma(req_per_s=5.0, cv=2.0), 2.0),
     (ConstantRate(req_per_s=5.0), 0.0)],
)  # fmt: skip
def test_gaps_have_their_mean_and_spread(arrivals: object, cv: float) -> None:
    times = np.array(arrivals.times(40_000, Random(3)))  # type: ignore[attr-defined]
    gaps = np.diff(times)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(0.2, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.05)


def test_a_replicate_fixes_the_requests() -> None:
    workload = Workload(
        arrivals=Poisson(req_per_s=1.0),
        n_requests=50,
        isl=Uniform(low_tokens=1, high_tokens=100),
        osl=Uniform(low_tokens=1, high_tokens=100),
    )
    one, again, other = (realised_requests(workload, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.isl_tokens, again.isl_tokens)
    np.testing.assert_array_equal(one.arrival_s, again.arrival_s)
    assert (one.isl_tokens != other.isl_tokens).any()
    longer = realised_requests(workload, 0, 100)
    np.testing.assert_array_equal(longer.isl_tokens[:50], one.isl_tokens)
    np.testing.assert_array_equal(longer.arrival_s[:50], one.arrival_s)


def test_turns_carry_what_was_said() -> None:
    workload = Workload(
        arrivals=ClosedLoop(concurrency=2),
        n_requests=6,
        isl=Constant(n_tokens=10),
        osl=Constant(n_tokens=5),
        shared_prefix_tokens=8,
        sessions=Sessions(turns=Constant(n_tokens=3), think_s=1.5),
    )
    found = realised_requests(workload, 0)
    assert found.isl_tokens.tolist() == [18, 33, 48, 18, 33, 48]
    assert found.follows.tolist() == [-1, 0, 1, -1, 3, 4]
    assert found.session.tolist() == [0, 0, 0, 1, 1, 1]
    keys = content_keys(found, 4)
    first, second, other = (set(keys.of(i)) for i in (0, 1, 3))
    assert first < second
    assert len(first & other) == 2


def test_hashes_name_whole_blocks() -> None:
    rows = (
        TraceRequest(0.0, 1024, 1, hash_ids=(7, 8)),
        TraceRequest(1.0, 1536, 1, hash_ids=(7, 8, 9)),
    )
    trace = Trace(file="t", content_id="t", rows=rows)
    found = realised_requests(Workload(arrivals=trace, n_requests=2), 0)
    keys = content_keys(found, 16)
    assert keys.count.tolist() == [64, 96]
    assert keys.of(0) == keys.of(1)[:64]
    assert keys.n_keys == 96


def test_a_trace_is_known_by_its_content() -> None:
    rows = (TraceRequest(0.0, 4, 2),)
    one = Trace(file="a.csv", content_id="x", rows=rows)
    assert one == replace(one, file="b.csv")
    assert one != replace(one, content_id="y")


def test_workloads_load_from_yaml() -> None:
    text = """
arrivals: {kind: closed_loop, concurrency: 64}
n_requests: 640
isl: {kind: uniform, low: 819, high: 1024}
osl: {kind: lognormal, mean: 1Ki, cv: 0.5}
sessions: {turns: {kind: constant, n: 3}, think: 2 s}
"""
    found = read_text(text, Workload)
    assert found.arrivals == ClosedLoop(concurrency=64)
    assert found.osl == Lognormal(mean_tokens=1024, cv=0.5)
    assert found.sessions is not None
    assert found.sessions.think_s == 2.0


def test_steady_is_for_rates() -> None:
    lengths = {"isl": Constant(n_tokens=1), "osl": Constant(n_tokens=1)}
    for arrivals, steady in ((AllAtOnce(), False), (Poisson(req_per_s=1.0), True)):
        assert Workload(arrivals=arrivals, n_requests=1, **lengths).is_steady is steady
