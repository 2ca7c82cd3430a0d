"""The engine bound is sound: nothing simulated beats it, whatever the deployment and the load."""

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dse.base.errors import DseError
from dse.model.ffn import Routing
from dse.search.engine_bound import METRICS, floors, replayed
from dse.search.offered import Offered
from dse.serving.arrivals import AllAtOnce, ClosedLoop, Gamma, Poisson
from dse.serving.deployment import Pool, SpeculativeDecoding
from dse.serving.engine import EngineHost
from dse.serving.layout import Layout
from dse.serving.lengths import Constant, Lognormal, Uniform
from dse.serving.routers import ROUTERS
from dse.serving.schedulers import SCHEDULERS
from dse.serving.slo import SLO
from dse.serving.workload import Sessions, Workload
from dse.sim import compile_run, simulate
from tests import worlds

LESS_IS_BETTER = {"tpot_mean_s", "tpot_p99_s", "ttft_mean_s", "ttft_p99_s", "e2e_mean_s"}
LESS_IS_BETTER |= {"joules_per_output_token"}

lengths = st.one_of(
    st.builds(Constant, n_tokens=st.integers(1, 300)),
    st.builds(Uniform, low_tokens=st.integers(1, 60), high_tokens=st.integers(60, 200)),
    st.builds(Lognormal, mean_tokens=st.integers(5, 120), cv=st.sampled_from([0.3, 1.5])),
)
arrivals = st.one_of(
    st.builds(ClosedLoop, concurrency=st.integers(1, 48)),
    st.builds(ClosedLoop, concurrency=st.integers(1, 48)),
    st.builds(Poisson, req_per_s=st.sampled_from([1.0, 1e3, 1e5])),
    st.builds(Gamma, req_per_s=st.sampled_from([10.0, 1e4]), cv=st.sampled_from([0.2, 4.0])),
    st.builds(AllAtOnce),
)
workloads = st.builds(
    Workload,
    arrivals=arrivals,
    n_requests=st.integers(1, 96),
    isl=lengths,
    osl=lengths,
    shared_prefix_tokens=st.sampled_from([0, 0, 0, 32, 100]),
    n_prefixes=st.integers(1, 2),
    sessions=st.one_of(
        st.none(), st.none(), st.builds(Sessions, turns=st.builds(Constant, n_tokens=st.just(3)))
    ),
)
hosts = st.builds(
    EngineHost,
    step_s=st.sampled_from([0.0, 1e-5, 1e-3]),
    request_s=st.sampled_from([0.0, 1e-6]),
    prefill_token_s=st.sampled_from([0.0, 1e-7]),
    arrival_s=st.sampled_from([0.0, 1e-5, 5e-3]),
    overlapped=st.booleans(),
    graph_batch_multiple=st.sampled_from([1, 8]),
    eager_op_s=st.sampled_from([0.0, 1e-6]),
    prefill_gap=st.sampled_from([0.0, 0.2]),
)
layouts = st.sampled_from(
    [
        Layout(),
        Layout(tp=2),
        Layout(pp=2),
        Layout(dp=2, ep=2),
        Layout(dp=4, ep=4),
        Layout(tp=2, dp=2, ep=4),
        Layout(tp=2, pp=2),
    ]
)
engines = st.builds(
    worlds.engine,
    host=hosts,
    max_num_batched_tokens=st.sampled_from([32, 256, 8192]),
    max_num_seqs=st.sampled_from([1, 2, 8, 32]),
    scheduler=st.sampled_from([SCHEDULERS[kind]() for kind in SCHEDULERS]),
    prefix_caching=st.booleans(),
)
models = st.sampled_from([worlds.tiny, worlds.mixture, worlds.sliding_hybrid, worlds.linear_hybrid])


@st.composite
def deployments(draw):
    """One pool, or two; sometimes with little KV, skewed experts or speculation."""
    found = worlds.deployment(
        draw(models)(),
        layout=draw(layouts),
        by=draw(engines),
        n_replicas=draw(st.sampled_from([1, 1, 2, 3])),
        kv_pool_bytes=draw(st.sampled_from([None, None, 400e3, 2e6])),
        routing=draw(st.sampled_from([Routing(), Routing(kind="zipf", exponent=1.0)])),
        router=ROUTERS[draw(st.sampled_from(["round_robin", "round_robin", "least_loaded"]))](),
        speculative=draw(
            st.sampled_from(
                [None, None, SpeculativeDecoding(method="draft", n_draft=2, acceptance=0.6)]
            )
        ),
    )
    if draw(st.booleans()) and draw(st.booleans()):
        decode = replace(found.pools[0], role="decode")
        prefill = Pool(
            gpu=decode.gpu,
            fabric=decode.fabric,
            layout=draw(layouts),
            engine=draw(engines),
            role="prefill",
            n_replicas=draw(st.sampled_from([1, 2])),
        )
        return replace(found, pools=(prefill, decode), speculative=None)
    return found


def check(deployment, workload, seed=0):
    """Compare a simulation with its bound; returns result ÷ bound by metric, 1 or worse."""
    spec = compile_run(deployment, "roofline")
    offered = Offered.of(workload, seed)
    found = simulate(deployment, workload, seed, spec=spec)
    # Bounds that about half of the requests keep: where attainment is neither 0 nor 1.
    slo = SLO(ttft_s=found.ttft.p50, tpot_s=found.tpot.p90, attainment=0.9)
    limits = replayed(spec, offered, slo) or floors(spec, offered, slo)
    if limits is None:
        return {}
    row = found.to_row() | {"slo_attainment": found.slo_attainment(slo)}
    row["goodput_req_per_s_per_gpu"] = found.request_per_s / found.n_gpus
    ratios = {}
    for name in METRICS:
        value, limit = row[name], limits.get(name)
        if limit is None or math.isnan(value) or value == limit:
            continue
        if name in LESS_IS_BETTER:
            assert value >= limit * (1 - 1e-9), (name, value, limit)
            ratios[name] = value / limit if limit else math.inf
        else:
            assert value <= limit * (1 + 1e-9), (name, value, limit)
            ratios[name] = limit / value if value else math.inf
    return ratios


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(deployments(), workloads, st.integers(0, 3))
def test_no_simulation_beats_its_bound(deployment, workload, seed):
    try:
        compile_run(deployment, "roofline")
    except DseError:
        assume(False)
    try:
        check(deployment, workload, seed)
    except DseError:
        assume(False)


@pytest.mark.parametrize("budget", [32, 8192])
@pytest.mark.parametrize("isl", [20, 200])
def test_a_static_batch_takes_prompts_beyond_the_token_budget(budget, isl):
    """64 prompts enter in one step, and 64 requests decode in the next, whatever the budget."""
    engine = worlds.engine(
        scheduler=SCHEDULERS["static"](), max_num_seqs=64, max_num_batched_tokens=budget
    )
    for model, osl in ((worlds.mixture, 1), (worlds.tiny, 40)):
        workload = Workload(
            arrivals=ClosedLoop(concurrency=64),
            n_requests=128,
            isl=Constant(n_tokens=isl),
            osl=Constant(n_tokens=osl),
        )
        assert check(worlds.deployment(model(), by=engine), workload)
