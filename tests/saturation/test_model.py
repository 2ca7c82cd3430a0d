"""The steady state: sums by hand, what must be conserved, what must be monotone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.saturation.curve import curve_of, stack
from dse.saturation.model import Load, throughput
from dse.serving.deployment import SpeculativeDecoding
from dse.serving.layout import Layout
from dse.serving.schedulers import PrefillFirst, Static
from tests import worlds
from tests.saturation.worlds import (
    FREE,
    TINY_KV_BYTES,
    TINY_WEIGHT_BYTES,
    predict,
    tiny,
)

HBM = 1e12


def value(array):
    return float(np.asarray(array).item())


def test_one_request_by_hand():
    # 63 decode steps read the weights and a mean context of 128 + 64/2; the prompt step reads the
    # weights and writes its KV. Norms, RoPE and activations stay in the endless L2.
    found = predict(tiny())
    step = (TINY_WEIGHT_BYTES + (128 + 32 + 1) * TINY_KV_BYTES) / HBM
    prompt = (TINY_WEIGHT_BYTES + 128 * TINY_KV_BYTES) / HBM
    assert value(found.tpot_s) == pytest.approx(step, rel=0.01)
    assert value(found.req_per_s) == pytest.approx(1 / (63 * step + prompt), rel=0.01)
    assert value(found.ttft_s) == pytest.approx(prompt, rel=0.02)
    assert value(found.e2e_s) == pytest.approx(value(found.ttft_s + 63 * found.tpot_s))


def test_kv_scan_is_linear_in_batch_and_context():
    def tpot(concurrency, isl):
        by = worlds.engine(scheduler=Static(), max_num_seqs=4096)
        load = {"concurrency": concurrency, "isl_tokens": isl, "osl_tokens": 64}
        return value(predict(tiny(by=by), **load).tpot_s)

    scan = 64 * 1000 * TINY_KV_BYTES / HBM
    assert tpot(64, 2000) - tpot(64, 1000) == pytest.approx(scan, rel=1e-3)
    assert tpot(128, 2000) - tpot(128, 1000) == pytest.approx(2 * scan, rel=1e-3)


def test_efficiencies_divide_what_they_name():
    by = worlds.engine(scheduler=Static())
    half = replace(FREE, kv_efficiency=0.5)
    load = {"concurrency": 64, "isl_tokens": 4000}
    slow, fast = (predict(tiny(by=by), constants, **load) for constants in (half, FREE))
    scan = 64 * (4000 + 32) * TINY_KV_BYTES / HBM
    assert value(slow.tpot_s - fast.tpot_s) == pytest.approx(scan, rel=0.01)


def test_token_budget_limits_what_decodes():
    # A step of 512 tokens: N decode, and N/63 of them are replaced by prompts of 256 tokens.
    by = worlds.engine(max_num_batched_tokens=512)
    found = predict(tiny(by=by), concurrency=100_000, isl_tokens=256)
    assert value(found.running) == pytest.approx(512 * 63 / (63 + 256), rel=1e-3)


def test_pool_limits_what_decodes():
    deployment = tiny(kv_pool_bytes=50 * (128 + 32 + 8) * TINY_KV_BYTES)
    found = predict(deployment, concurrency=1000)
    assert value(found.running) == pytest.approx(50 * 63 / 64, rel=0.01)
    shared = predict(deployment, concurrency=1000, cached_tokens=96)
    assert value(shared.running) > 2 * value(found.running)


def test_a_pool_without_room_serves_nothing():
    found = predict(tiny(kv_pool_bytes=100 * TINY_KV_BYTES), concurrency=4)
    assert value(found.req_per_s) == 0.0
    assert np.isnan(value(found.tpot_s))
    assert np.isnan(value(found.e2e_s))


def test_one_token_outputs_have_no_tpot():
    found = predict(tiny(), osl_tokens=1)
    assert np.isnan(value(found.tpot_s))
    assert value(found.e2e_s) == value(found.ttft_s) > 0


@pytest.mark.parametrize("scheduler", [None, PrefillFirst()])
@pytest.mark.parametrize("concurrency", [1, 7, 200, 5000])
def test_littles_law(scheduler, concurrency):
    by = worlds.engine(**({"scheduler": scheduler} if scheduler else {}))
    found = predict(tiny(by=by), concurrency=concurrency, osl_tokens=200)
    assert value(found.req_per_s * found.e2e_s) == pytest.approx(concurrency, rel=0.02)


def test_replicas_share_the_load_and_add_up():
    one = predict(tiny(), concurrency=16)
    three = predict(tiny(n_replicas=3), concurrency=48)
    assert value(three.req_per_s) == pytest.approx(3 * value(one.req_per_s))
    assert value(three.tpot_s) == pytest.approx(value(one.tpot_s))
    assert value(three.output_tok_per_s_per_gpu) == pytest.approx(
        value(one.output_tok_per_s_per_gpu)
    )


def test_pipeline_stages_take_turns():
    # A pass through two half models costs what the whole does, and two micro-batches overlap.
    whole = predict(worlds.deployment(worlds.llama_8b()), concurrency=8, osl_tokens=512)
    cut = predict(
        worlds.deployment(worlds.llama_8b(), layout=Layout(pp=2)), concurrency=16, osl_tokens=512
    )
    assert value(cut.tpot_s) == pytest.approx(value(whole.tpot_s), rel=0.08)
    assert value(cut.output_tok_per_s) == pytest.approx(2 * value(whole.output_tok_per_s), rel=0.08)


def test_speculation_divides_tpot():
    model = worlds.deepseek_v3(speculative=True)
    plain = worlds.deployment(model, precision=worlds.FP8_BLOCK, layout=Layout(tp=8))
    guess = SpeculativeDecoding(method="mtp", n_draft=1, acceptance=0.9)
    found = [
        predict(deployment, concurrency=4, isl_tokens=1000, osl_tokens=1000)
        for deployment in (plain, replace(plain, speculative=guess))
    ]
    assert value(found[1].tpot_s) < 0.9 * value(found[0].tpot_s)


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        (worlds.mixture(), Layout(tp=2, ep=2)),
        (worlds.mixture(), Layout(dp=2, ep=2)),
        (worlds.sliding_hybrid(), Layout(tp=4)),
        (worlds.linear_hybrid(), Layout()),
        (worlds.deepseek_v3(sparse=True), Layout(tp=16)),
    ],
    ids=lambda part: getattr(part, "name", "") or part.label(),
)
def test_every_variant_has_a_plateau(model, layout):
    deployment = worlds.deployment(model, layout=layout)
    curves = stack([curve_of(deployment, FREE)])
    load = Load(concurrency=2.0 ** np.arange(14), isl_tokens=1024, osl_tokens=256)
    found = throughput(curves, 0, load)
    rates = found.output_tok_per_s
    assert np.all(np.isfinite(rates))
    assert np.all(rates > 0)
    # Beyond 256 tokens a rank the exchange changes its kernels, to ones that start later.
    assert np.all(rates[1:] >= 0.85 * np.maximum.accumulate(rates)[:-1])
    assert rates[-1] < 1.2 * rates[-3]


@given(
    concurrency=st.integers(1, 3000),
    isl=st.integers(1, 20_000),
    osl=st.integers(1, 5_000),
    n=st.integers(1, 100_000),
    cv2=st.floats(0, 2),
)
@settings(max_examples=80)
def test_rates_are_sound_everywhere(concurrency, isl, osl, n, cv2):
    load = {
        "concurrency": concurrency, "isl_tokens": isl, "osl_tokens": osl,
        "n_requests": n, "osl_cv2": cv2,
    }  # fmt: skip
    found = predict(tiny(), **load)
    assert 0 < value(found.req_per_s) < np.inf
    assert value(found.running) <= concurrency * (1 + 1e-9)
    assert value(found.e2e_s) > 0
    assert osl == 1 or value(found.tpot_s) > 0


@given(concurrency=st.integers(1, 500), isl=st.integers(16, 4000), osl=st.integers(2, 1000))
@settings(max_examples=40)
def test_more_bandwidth_never_hurts(concurrency, isl, osl):
    load = {"concurrency": concurrency, "isl_tokens": isl, "osl_tokens": osl}
    slow = predict(worlds.deployment(worlds.tiny()), **load)
    fast = predict(worlds.deployment(worlds.tiny(), on=worlds.gpu(hbm_bytes_per_s=2e12)), **load)
    assert value(fast.output_tok_per_s) >= value(slow.output_tok_per_s) * (1 - 1e-9)


def test_a_run_that_ends_is_slower_than_one_that_does_not():
    endless = value(predict(tiny(), concurrency=64, osl_cv2=0.5).req_per_s)
    rates = [
        value(predict(tiny(), concurrency=64, osl_cv2=0.5, n_requests=n).req_per_s)
        for n in (64, 640, 6400, 640_000)
    ]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(endless, rel=1e-3)


def test_points_do_not_see_each_other():
    schedulers = (worlds.engine().scheduler, PrefillFirst(), Static())
    deployments = [tiny(by=worlds.engine(scheduler=each)) for each in schedulers]
    curves = stack([curve_of(each, FREE) for each in deployments])
    which, concurrency = np.array([2, 0, 1, 0]), np.array([8.0, 3.0, 70.0, 900.0])
    together = throughput(
        curves, which, Load(concurrency=concurrency, isl_tokens=500, osl_tokens=100)
    )
    for i, (deployment, load) in enumerate(zip(which, concurrency, strict=True)):
        alone = predict(deployments[deployment], concurrency=load, isl_tokens=500, osl_tokens=100)
        assert value(alone.output_tok_per_s) == pytest.approx(together.output_tok_per_s[i])
        assert value(alone.ttft_s) == pytest.approx(together.ttft_s[i])


def test_what_the_api_server_holds_is_in_flight_but_on_no_engine():
    """A closed loop of one: a request takes its seconds in the engine and those in the server."""
    host = worlds.engine().host
    hosts = (host, replace(host, arrival_s=0.5))
    quick, slow = (tiny(by=worlds.engine(host=each)) for each in hosts)
    load = Load(concurrency=1.0, isl_tokens=100.0, osl_tokens=20.0)
    alone, held = (throughput(stack([curve_of(each)]), 0, load) for each in (quick, slow))
    assert 1.0 / held.req_per_s == pytest.approx(1.0 / alone.req_per_s + 0.5, rel=1e-6)
    assert held.tpot_s == pytest.approx(alone.tpot_s)
    full = throughput(stack([curve_of(slow)]), 0, load, kept_full=True)
    assert full.req_per_s == pytest.approx(alone.req_per_s)
    once = throughput(stack([curve_of(slow)]), 0, replace(load, n_requests=1.0))
    at_once = throughput(stack([curve_of(quick)]), 0, replace(load, n_requests=1.0))
    assert once.req_per_s == pytest.approx(at_once.req_per_s)
