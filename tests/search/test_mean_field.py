"""Mean values of closed loops tell what the simulator finds, near enough to sort by."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from dse.search.loop_bound import LoopBound
from dse.search.offered import Offered
from dse.search.paces import Paces
from dse.serving.arrivals import ClosedLoop
from dse.serving.layout import Layout
from dse.serving.lengths import Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import compile_run, simulate
from tests import worlds


def loop(concurrency, isl=2000, osl=300, waves=6):
    return Workload(
        arrivals=ClosedLoop(concurrency=concurrency),
        n_requests=waves * concurrency,
        isl=Uniform(low_tokens=int(0.8 * isl), high_tokens=isl),
        osl=Uniform(low_tokens=int(0.8 * osl), high_tokens=osl),
    )


def guessed(deployment, workload, slo=None, **asked):
    spec = compile_run(deployment, "roofline")
    bound = LoopBound(
        spec_of=lambda _: spec,
        workload_of=lambda _: workload,
        offered=lambda key: Offered.of(key[0], 0),
        slo=slo,
    )
    point = pl.DataFrame(
        {
            "point": [7],
            "structure": [0],
            "concurrency": [workload.arrivals.concurrency],
            "n_gpus": [spec.n_gpus],
        }
    )
    return bound.guess(point, **asked).row(0, named=True)


def apart(layout, prefill, n_prefill=1, n_decode=1):
    one = worlds.deployment(worlds.llama_8b(), layout=layout, n_replicas=n_decode)
    decode = replace(one.pools[0], role="decode")
    first = replace(decode, role="prefill", layout=prefill, n_replicas=n_prefill)
    return replace(one, pools=(first, decode))


DEPLOYMENTS = {
    "one GPU": worlds.deployment(worlds.llama_8b()),
    "replicas": worlds.deployment(worlds.llama_8b(), n_replicas=2),
    "ranks in lock-step": worlds.deployment(
        worlds.mixture(), layout=Layout(dp=4, ep=4), joined=worlds.fabric()
    ),
    "pipeline": worlds.deployment(worlds.llama_8b(), layout=Layout(pp=2)),
    "apart": apart(Layout(), Layout()),
    "two that prefill": apart(Layout(tp=2), Layout(), n_prefill=2),
}


@pytest.mark.parametrize("concurrency", [1, 8, 32])
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_it_is_near_the_simulator(name, concurrency):
    deployment = DEPLOYMENTS[name]
    workload = loop(concurrency if name != "replicas" else 2 * concurrency)
    spec = compile_run(deployment, "roofline")
    result = simulate(deployment, workload, 0, spec=spec)
    found = guessed(deployment, workload)
    per_gpu = result.output_tok_per_s / result.n_gpus
    assert found["tpot_mean_s"] == pytest.approx(result.tpot.mean, rel=0.2)
    assert found["output_tok_per_s_per_gpu"] == pytest.approx(per_gpu, rel=0.15)


def test_who_finds_no_seat_waits():
    tight = worlds.deployment(worlds.llama_8b(), kv_pool_bytes=4e9)
    workload = loop(64)
    result = simulate(tight, workload, 0, spec=compile_run(tight, "roofline"))
    found = guessed(tight, workload)
    roomy = guessed(worlds.deployment(worlds.llama_8b()), workload)
    assert found["ttft_mean_s"] > 5.0 * roomy["ttft_mean_s"]
    per_gpu = result.output_tok_per_s / result.n_gpus
    assert found["output_tok_per_s_per_gpu"] == pytest.approx(per_gpu, rel=0.25)


def test_paces_are_those_of_the_step_cost():
    pool = compile_run(worlds.deployment(worlds.llama_8b()), "roofline").pools[0]
    paces = Paces.of(pool, 1500.0, 2000.0)
    for batch, step_s in zip(paces.batch, paces.step_s, strict=True):
        exact = pool.cost.decode_seconds(np.array([batch]), np.array([1500.0]))[0]
        assert step_s == pytest.approx(exact, rel=1e-9)
    assert paces.alone_s == pool.cost.prefill_seconds(2000)


def test_strain_rises_with_the_load_and_tells_a_kept_slo():
    deployment = DEPLOYMENTS["one GPU"]
    strains, kept = [], []
    for concurrency in (1, 4, 16, 64):
        workload = loop(concurrency, waves=12)
        result = simulate(deployment, workload, 0, spec=compile_run(deployment, "roofline"))
        slo = SLO(ttft_s=3.0, tpot_s=0.06, attainment=0.9)
        strains.append(guessed(deployment, workload, slo)["strain"])
        kept.append(result.slo_attainment(slo) >= slo.attainment)
    assert strains == sorted(strains)
    assert kept == [strain <= 1.0 for strain in strains]
    assert True in kept
    assert False in kept
