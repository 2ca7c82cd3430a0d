"""Closed loops in few moves: latencies are those of a simulation, or there are none."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dse.base.errors import DseError
from dse.serving.arrivals import ClosedLoop
from dse.serving.deployment import Pool
from dse.serving.engine import EngineHost
from dse.serving.layout import Layout
from dse.serving.lengths import Constant, Uniform
from dse.serving.routers import ROUTERS
from dse.serving.schedulers import SCHEDULERS
from dse.serving.workload import Workload
from dse.sim import compile_run, realised_requests, simulate
from dse.sim.loop import closed_loop, is_simple
from dse.sim.simulate import _one_of_equals
from tests import worlds

LAYOUTS = [Layout(), Layout(tp=2), Layout(pp=2), Layout(dp=2, ep=2), Layout(dp=4, ep=4)]
LAYOUTS += [Layout(tp=2, pp=2), Layout(pp=4)]
lengths = st.one_of(
    st.builds(Constant, n_tokens=st.integers(1, 300)),
    st.builds(Uniform, low_tokens=st.integers(1, 60), high_tokens=st.integers(60, 200)),
)
engines = st.builds(
    worlds.engine,
    host=st.builds(
        EngineHost,
        step_s=st.sampled_from([0.0, 1e-5, 1e-3]),
        request_s=st.sampled_from([0.0, 1e-6]),
        prefill_token_s=st.sampled_from([0.0, 1e-7]),
        arrival_s=st.sampled_from([0.0, 3e-5, 5e-3]),
        overlapped=st.booleans(),
        graph_batch_multiple=st.sampled_from([1, 8]),
        eager_op_s=st.sampled_from([0.0, 1e-6]),
        prefill_gap=st.sampled_from([0.0, 0.2]),
    ),
    max_num_batched_tokens=st.sampled_from([64, 300, 8192]),
    max_num_seqs=st.sampled_from([2, 8, 64]),
    scheduler=st.sampled_from([SCHEDULERS[k]() for k in ("chunked_prefill", "prefill_first")]),
)
models = st.sampled_from([worlds.tiny, worlds.mixture, worlds.sliding_hybrid])


@st.composite
def deployments(draw):
    """One pool, or two."""
    found = worlds.deployment(
        draw(models)(),
        layout=draw(st.sampled_from(LAYOUTS)),
        by=draw(engines),
        n_replicas=draw(st.sampled_from([1, 1, 2, 3])),
        kv_pool_bytes=draw(st.sampled_from([None, None, 2e6])),
        router=ROUTERS[draw(st.sampled_from(["round_robin", "least_loaded"]))](),
    )
    if draw(st.booleans()):
        return found
    decode = replace(found.pools[0], role="decode")
    prefill = Pool(
        gpu=decode.gpu,
        fabric=decode.fabric,
        layout=draw(st.sampled_from(LAYOUTS)),
        engine=draw(engines),
        role="prefill",
        n_replicas=draw(st.sampled_from([1, 2])),
    )
    return replace(found, pools=(prefill, decode))


def replayed(deployment, workload, seed=0):
    """Latencies in few moves, their rate, and the simulation; None if refused."""
    spec = compile_run(deployment, "roofline")
    requests = realised_requests(workload, seed)
    if not is_simple(spec):
        return None
    one, part, _ = _one_of_equals(spec, requests)
    isl, osl = part.isl_tokens.astype(float), part.osl_tokens.astype(float)
    found = closed_loop(one, isl, osl, part.concurrency)
    if found is None:
        return None
    rate = osl.sum() / found.duration_s / one.n_gpus
    return found, rate, simulate(deployment, workload, seed, spec=spec)


def check(found, rate, simulated):
    row = simulated.to_row()
    assert found.ttft_s.mean() == pytest.approx(row["ttft_mean_s"], rel=1e-9)
    assert found.e2e_s.mean() == pytest.approx(row["e2e_mean_s"], rel=1e-9)
    assert rate == pytest.approx(row["output_tok_per_s_per_gpu"], rel=1e-9)


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(deployments(), st.integers(1, 48), st.integers(1, 96), lengths, lengths, st.integers(0, 3))
def test_latencies_are_those_of_a_simulation(deployment, concurrency, n, isl, osl, seed):
    load = ClosedLoop(concurrency=concurrency)
    workload = Workload(arrivals=load, n_requests=max(n, concurrency), isl=isl, osl=osl)
    try:
        both = replayed(deployment, workload, seed)
    except DseError:
        assume(False)
    assume(both is not None)
    check(*both)


@pytest.mark.parametrize("layout", LAYOUTS, ids=Layout.label)
@pytest.mark.parametrize("scheduler", ["chunked_prefill", "prefill_first"])
@pytest.mark.parametrize("apart", [False, True])
def test_no_run_with_room_is_refused(layout, scheduler, apart):
    host = EngineHost(step_s=1e-5, request_s=1e-7, prefill_token_s=1e-9, arrival_s=31e-6)
    engine = worlds.engine(host=host, scheduler=SCHEDULERS[scheduler](), max_num_seqs=64)
    deployment = worlds.deployment(worlds.mixture(), layout=layout, by=engine)
    if apart:
        decode = replace(deployment.pools[0], role="decode", n_replicas=2)
        prefill = replace(deployment.pools[0], role="prefill", n_replicas=3)
        deployment = replace(deployment, pools=(prefill, decode))
    workload = Workload(
        arrivals=ClosedLoop(concurrency=12),
        n_requests=60,
        isl=Uniform(low_tokens=20, high_tokens=60),
        osl=Uniform(low_tokens=5, high_tokens=90),
    )
    check(*replayed(deployment, workload))


@pytest.mark.parametrize("scheduler", ["chunked_prefill", "prefill_first"])
def test_a_run_whose_kv_falls_short_is_refused(scheduler):
    """At any size of the pool: requests grow long after the last one was admitted."""
    workload = Workload(
        arrivals=ClosedLoop(concurrency=8),
        n_requests=16,
        isl=Constant(n_tokens=20),
        osl=Uniform(low_tokens=250, high_tokens=300),
    )
    engine = worlds.engine(scheduler=SCHEDULERS[scheduler]())
    refused = []
    for blocks in range(30, 230, 4):
        short = worlds.deployment(worlds.tiny(), by=engine)
        one = compile_run(short, "roofline").pools[0].kv
        bytes_each = one.curve.request_bytes(one.block_tokens)
        short = replace(short, kv_pool_bytes=blocks * bytes_each)
        both = replayed(short, workload)
        refused.append(both is None)
        if both is not None:
            check(*both)
    assert refused[0]
    assert not refused[-1]
    assert refused == sorted(refused, reverse=True)


def test_priorities_caches_and_drafts_are_not_simple():
    by_length = replace(SCHEDULERS["chunked_prefill"](), policy="shortest")
    deployment = worlds.deployment(worlds.tiny(), by=worlds.engine(scheduler=by_length))
    assert not is_simple(compile_run(deployment, "roofline"))
    aware = worlds.deployment(worlds.tiny(), router=ROUTERS["prefix_aware"]())
    assert not is_simple(compile_run(aware, "roofline"))


def test_a_run_is_reproducible():
    deployment = worlds.deployment(worlds.tiny())
    workload = Workload(
        arrivals=ClosedLoop(concurrency=4),
        n_requests=20,
        isl=Uniform(low_tokens=20, high_tokens=60),
        osl=Uniform(low_tokens=5, high_tokens=90),
    )
    first, second = (replayed(deployment, workload)[0] for _ in range(2))
    assert np.array_equal(first.e2e_s, second.e2e_s)
