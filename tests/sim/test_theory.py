"""Queueing theory: M/D/1, Little's law, the tandem queue, and bounds that no schedule can break."""

from dataclasses import replace

import numpy as np
import pytest

from dse.hardware import Link
from dse.serving.arrivals import ClosedLoop, Poisson
from dse.serving.lengths import Constant, Lognormal, Uniform
from dse.serving.workload import Workload
from dse.sim.fast import run_fast
from dse.sim.reference import run_reference
from dse.sim.simulate import simulate
from dse.sim.traffic import realised_requests
from tests import worlds as models
from tests.sim.worlds import deployment, free, host, priced

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_md1_waiting_time(load: float) -> None:
    """One place and one-token answers make each request one step of 1 s: M/D/1, whose mean wait is
    ρ / (2 (1 − ρ)) services (Pollaczek-Khinchine)."""
    spec = free(deployment(max_num_seqs=1))
    workload = Workload(
        arrivals=Poisson(req_per_s=load),
        n_requests=60_000,
        isl=Constant(n_tokens=4),
        osl=Constant(n_tokens=1),
    )
    waits = []
    for seed in range(4):
        outcome = run_fast(spec, realised_requests(workload, seed))
        waits.append(float((outcome.admitted_s - outcome.asked_s).mean()))
    assert np.mean(waits) == pytest.approx(load / (2.0 * (1.0 - load)), rel=0.03)


def test_littles_law() -> None:
    """Requests in the system = rate × time in it, in the steady middle of an open run."""
    spec = priced(deployment(model=models.llama_8b(), host=host(1e-3), max_num_seqs=64))
    workload = Workload(
        arrivals=Poisson(req_per_s=4.0),
        n_requests=8000,
        isl=Uniform(low_tokens=100, high_tokens=900),
        osl=Lognormal(mean_tokens=128, cv=1.0, max_tokens=1024),
    )
    outcome = run_fast(spec, realised_requests(workload, 0))
    low, high = np.quantile(outcome.asked_s, [0.1, 0.9])
    inside = np.minimum(outcome.finish_s, high) - np.maximum(outcome.asked_s, low)
    in_system = inside[inside > 0].sum() / (high - low)
    arrived = (outcome.asked_s >= low) & (outcome.asked_s < high)
    rate = arrived.sum() / (high - low)
    stay = (outcome.finish_s - outcome.asked_s)[arrived].mean()
    assert in_system == pytest.approx(rate * stay, rel=0.02)


def test_a_closed_loop_keeps_its_concurrency() -> None:
    """Little again: concurrency = rate × E2E while the loop is full."""
    spec = priced(deployment(model=models.llama_8b(), host=host(1e-3), max_num_seqs=64))
    workload = Workload(
        arrivals=ClosedLoop(concurrency=32),
        n_requests=4000,
        isl=Uniform(low_tokens=100, high_tokens=900),
        osl=Uniform(low_tokens=50, high_tokens=150),
    )
    metrics = simulate(None, workload, 0, spec=spec, path="fast")  # type: ignore[arg-type]
    assert metrics.request_per_s * metrics.e2e.mean == pytest.approx(32, rel=0.02)


def test_apart_with_endless_bandwidth_is_the_tandem_queue() -> None:
    """The decode pool sees the prefill pool's departures: each alone gives the same times."""
    together = deployment(max_num_seqs=2, host=host(1.0))
    pool = together.pools[0]
    link = Link(n_gpus=2, bytes_per_s=1e30, latency_s=0.0, latency_floor_s=0.0)
    pools = (replace(pool, role="prefill"), replace(pool, role="decode"))
    apart = free(replace(together, pools=pools, interconnect=link))
    workload = Workload(
        arrivals=Poisson(req_per_s=0.5),
        n_requests=200,
        isl=Constant(n_tokens=4),
        osl=Constant(n_tokens=3),
    )
    requests = realised_requests(workload, 0)
    both = run_reference(apart, requests)
    alone = free(together)
    first = run_reference(alone, replace(requests, osl_tokens=np.ones(200, dtype=np.int64)))
    np.testing.assert_allclose(both.first_token_s, first.finish_s)
    # The second station: two tokens of one second each, two places, in order of arrival.
    second = replace(requests, arrival_s=first.finish_s, osl_tokens=np.full(200, 2, dtype=np.int64))
    stations = run_reference(alone, second)
    np.testing.assert_allclose(both.finish_s, stations.finish_s)


def test_seeds_of_an_inference_benchmark_agree() -> None:
    """Closed loop, lengths 0.8 to 1.0 of nominal, ten prompts a seat: medians differ by < 2%."""
    spec = priced(deployment(model=models.llama_8b(), host=host(1e-3), max_num_seqs=256))
    workload = Workload(
        arrivals=ClosedLoop(concurrency=64),
        n_requests=640,
        isl=Uniform(low_tokens=820, high_tokens=1024),
        osl=Uniform(low_tokens=820, high_tokens=1024),
    )
    found = [
        simulate(None, workload, seed, spec=spec)  # type: ignore[arg-type]
        for seed in range(5)
    ]
    for values in ([m.ttft.p50 for m in found], [m.tpot.p50 for m in found]):
        assert max(values) / min(values) < 1.02
