"""A shorter run proves which share of requests may be on time, and never too little."""

from dataclasses import replace

import polars as pl
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dse.base.errors import DseError
from dse.search import engine_bound, prefix
from dse.search.engine_bound import EngineBound
from dse.search.offered import Offered, attainment_at_most
from dse.search.prefix import most_on_time
from dse.serving.arrivals import ClosedLoop
from dse.serving.engine import EngineHost
from dse.serving.layout import Layout
from dse.serving.lengths import Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import compile_run, simulate
from tests import worlds
from tests.search.test_engine_bound import deployments
from tests.search.test_loop_bound import apart

SLOW = EngineHost(step_s=1e-3, request_s=0.0, prefill_token_s=0.0, arrival_s=0.0)


def loop(concurrency, per_concurrency):
    return Workload(
        arrivals=ClosedLoop(concurrency=concurrency),
        n_requests=concurrency * per_concurrency,
        isl=Uniform(low_tokens=20, high_tokens=200),
        osl=Uniform(low_tokens=10, high_tokens=60),
    )


def at_most(deployment, spec, workload, seed, slo):
    offered = Offered.of(workload, seed)
    return most_on_time(deployment, spec, (workload, seed), offered, slo)


@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    st.one_of(deployments(), apart()),
    st.integers(1, 24),
    st.integers(4, 10),
    st.sampled_from(["p10", "p50", "p90"]),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_no_simulation_has_more_on_time(deployment, concurrency, each, at, attainment):
    workload = loop(concurrency, each)
    spec = compile_run_or_skip(deployment)
    assume(spec.admits(200, 60))
    found = simulate(deployment, workload, 1, spec=spec)
    slo = SLO(
        ttft_s=getattr(found.ttft, at, found.ttft.p50),
        tpot_s=getattr(found.tpot, at, found.tpot.p50),
        attainment=attainment,
    )
    share = at_most(deployment, spec, workload, 1, slo)
    assert share >= found.slo_attainment(slo) - 1e-9


def compile_run_or_skip(deployment):
    try:
        return compile_run(deployment, "roofline")
    except DseError:
        assume(False)


def test_a_hopeless_load_is_proved_so_and_a_kept_one_is_not():
    deployment = worlds.deployment(worlds.tiny(), by=worlds.engine(host=SLOW))
    workload = loop(16, 10)
    spec = compile_run(deployment, "roofline")
    found = simulate(deployment, workload, 0, spec=spec)
    slow = SLO(tpot_s=found.tpot.p50 / 3.0, attainment=0.9)
    assert at_most(deployment, spec, workload, 0, slow) < 0.9
    kept = replace(slow, tpot_s=found.tpot.p99 * 1.1)
    assert at_most(deployment, spec, workload, 0, kept) == 1.0


def test_a_run_that_would_not_be_shorter_is_not_made():
    deployment = worlds.deployment(worlds.tiny())
    workload = loop(16, 2)
    spec = compile_run(deployment, "roofline")
    assert at_most(deployment, spec, workload, 0, SLO(tpot_s=1e-9, attainment=0.9)) == 1.0


def test_parts_of_unequal_sizes_are_asked_as_many_as_are_counted(monkeypatch):
    """401 requests on two replicas: the part that stands for both has 201 of them."""
    asked = []

    def spy(*args, **named):
        asked.append(len(named["requests"]))
        return simulate(*args, **named)

    monkeypatch.setattr(prefix, "simulate", spy)
    deployment = worlds.deployment(worlds.tiny(), by=worlds.engine(host=SLOW), n_replicas=2)
    spec = compile_run(deployment, "roofline")
    workload = replace(loop(2, 10), n_requests=401)
    share = at_most(deployment, spec, workload, 0, SLO(tpot_s=1e-9, attainment=0.9))
    # Of n in the part n - 1 are late: one may be in flight when the last is asked.
    assert share == (201 - (asked[0] // 2 - 1)) / 201
    assert asked[0] % 2 == 0


def test_of_long_runs_the_good_ones_may_be_those_that_are_kept():
    assert attainment_at_most(90, 100) == 0.9
    assert attainment_at_most(8192, 20_000) == 8192 / 10_000
    assert attainment_at_most(12_000, 20_000) == 1.0


def test_results_are_checked_without_shorter_runs(monkeypatch):
    """No objective reads what they prove, so a simulated point is not simulated twice."""
    by = worlds.engine(host=SLOW)
    deployment = worlds.deployment(worlds.tiny(), layout=Layout(pp=2), by=by)
    workload = loop(16, 10)
    bound = EngineBound(
        deployments={0: deployment},
        workload_of=lambda row: workload,
        tier="roofline",
        slo=SLO(ttft_s=1e-6, tpot_s=1e-3, attainment=0.9),
    ).bounds()[-1]
    point = pl.DataFrame({"point": pl.Series([7], dtype=pl.UInt64), "structure": [0]})
    proved = bound.of(point)
    assert proved["slo_attainment"].item() < 0.9
    monkeypatch.setattr(engine_bound, "most_on_time", None)
    assert bound.checked is not None
    checked = bound.checked(point)
    assert checked.drop("slo_attainment").equals(proved.drop("slo_attainment"))
