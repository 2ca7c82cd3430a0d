"""From times to a row: percentiles, the sketch, goodput of any SLO, steady state, energy."""

from dataclasses import replace

import numpy as np
import pytest

from dse.serving.arrivals import ClosedLoop, Poisson
from dse.serving.lengths import Constant, Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Stopping, Workload
from dse.sim import LatencySketch, Spread, simulate
from dse.sim.drafts import Drafts
from dse.sim.steady import warm_up
from dse.sim.totals import GAP_BINS, gap_bin, gap_seconds
from tests.sim.worlds import deployment, free, host, priced, trace


def test_one_request_by_hand() -> None:
    """Arrives at 0.5; 1 s a step: tokens at 1.5, 2.5, 3.5."""
    found = simulate(None, trace([(0.5, 4, 3)]), 0, spec=free(deployment()))  # type: ignore[arg-type]
    assert found.ttft.mean == 1.0
    assert found.tpot.p99 == 1.0
    assert found.itl.mean == pytest.approx(1.0, rel=2e-3)
    assert found.e2e.p50 == 3.0
    assert found.duration_s == 3.0
    assert found.output_tok_per_s == pytest.approx(1.0)
    assert found.tok_per_s_per_user == pytest.approx(1.0)
    assert found.step_breakdown["host"] == pytest.approx(3.0)
    assert found.batch_mean == pytest.approx(1.0)


def test_tpot_of_a_single_token_is_not_defined() -> None:
    found = simulate(None, trace([(0, 4, 1)]), 0, spec=free(deployment()))  # type: ignore[arg-type]
    assert np.isnan(found.tpot.mean)
    assert found.slo_attainment(SLO(tpot_s=1e-6)) == 1.0


def test_idle_and_busy_watts() -> None:
    """Host time only: the GPU idles at 100 W."""
    found = simulate(None, trace([(0, 4, 3)]), 0, spec=free(deployment()))  # type: ignore[arg-type]
    assert found.energy_joules == pytest.approx(300.0, rel=0.01)
    assert found.joules_per_output_token == pytest.approx(100.0, rel=0.01)


def test_sketch_keeps_the_joint_distribution() -> None:
    rng = np.random.default_rng(0)
    ttft, tpot = rng.lognormal(0, 1, 3000), rng.lognormal(-3, 0.5, 3000)
    e2e = ttft + 100 * tpot
    sketch = LatencySketch.of(ttft, tpot, e2e, 0)
    again = LatencySketch.from_bytes(sketch.to_bytes())
    assert again == sketch
    assert len(sketch.to_bytes()) < 6 * 3000
    for slo in (SLO(ttft_s=1.0, tpot_s=0.05), SLO(e2e_s=6.0), SLO()):
        good = np.ones(3000, dtype=bool)
        for values, bound in ((ttft, slo.ttft_s), (tpot, slo.tpot_s), (e2e, slo.e2e_s)):
            good &= True if bound is None else values <= bound
        assert sketch.attainment(slo) == pytest.approx(good.mean(), abs=2e-3)


def test_a_long_sketch_is_thinned_evenly() -> None:
    values = np.linspace(1.0, 2.0, 30_000)
    sketch = LatencySketch.of(values, values, values, 10_000)
    assert len(sketch.samples) == 15_000
    assert sketch.attainment(SLO(e2e_s=1.5)) == pytest.approx(0.5 * 0.75, abs=1e-3)


def test_gaps_are_binned_finely() -> None:
    for seconds in (2e-6, 1e-3, 0.0123, 1.0, 77.0):
        assert gap_seconds(gap_bin(seconds)) == pytest.approx(seconds, rel=2e-3)
    assert gap_bin(0.0) == 0
    assert gap_bin(1e9) == GAP_BINS - 1
    counts = np.zeros(GAP_BINS, dtype=np.int64)
    counts[gap_bin(0.01)], counts[gap_bin(0.1)] = 98, 2
    assert Spread.of_gaps(counts).p99 == pytest.approx(0.1, rel=2e-3)
    assert Spread.of_gaps(counts).p50 == pytest.approx(0.01, rel=2e-3)


def test_drafts_yield_their_mean() -> None:
    drafts = Drafts(n_draft=3, acceptance=0.8, seed=7)
    yielded = [drafts.yielded(r, p) for r in range(200) for p in range(100)]
    assert set(yielded) == {1, 2, 3, 4}
    assert np.mean(yielded) == pytest.approx(1 + 0.8 + 0.64 + 0.512, rel=0.02)


def test_warm_up_is_cut_where_the_mean_settles() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([np.linspace(10, 1, 200), np.full(800, 1.0)])
    assert 150 <= warm_up(values + rng.normal(0, 0.05, 1000)) <= 260
    assert warm_up(np.ones(1000)) == 0
    assert warm_up(np.arange(7.0)) == 0


def test_runs_grow_until_stable_or_capped() -> None:
    spec = priced(deployment(host=host(1e-3), max_num_seqs=8))
    workload = Workload(
        arrivals=Poisson(req_per_s=10.0),
        n_requests=50,
        isl=Uniform(low_tokens=10, high_tokens=50),
        osl=Uniform(low_tokens=10, high_tokens=50),
        stopping=Stopping(max_requests=1600, tolerance=0.2),
    )
    found = simulate(None, workload, 0, spec=spec)  # type: ignore[arg-type]
    assert found.stopped == "stable"
    assert 100 <= found.n_requests < 1600
    strict = replace(workload, stopping=Stopping(max_requests=200, tolerance=1e-9))
    capped = simulate(None, strict, 0, spec=spec)  # type: ignore[arg-type]
    assert (capped.stopped, capped.n_requests) == ("cap", 200)


def test_a_drain_is_left_out_of_the_steady_state() -> None:
    spec = free(deployment(max_num_seqs=4))
    workload = Workload(
        arrivals=ClosedLoop(concurrency=4),
        n_requests=40,
        isl=Constant(n_tokens=4),
        osl=Constant(n_tokens=3),
        stopping=Stopping(measure="steady"),
    )
    found = simulate(None, workload, 0, spec=spec)  # type: ignore[arg-type]
    assert found.n_requests == 40
    assert found.n_measured < 40


def test_a_row_is_flat() -> None:
    row = simulate(None, trace([(0, 4, 2)]), 0, spec=free(deployment())).to_row()  # type: ignore[arg-type]
    assert {"ttft_p50_s", "tpot_p99_s", "itl_p99_s", "e2e_mean_s", "mfu", "latency_sketch"} <= set(
        row
    )
    assert "served_by" not in row
    assert LatencySketch.from_bytes(row["latency_sketch"]).n_requests == 1
