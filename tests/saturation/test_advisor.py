"""The advisor: the smallest cap that is good enough, and what it gives back."""

from dataclasses import replace

import numpy as np
import pytest

from dse.base.errors import InfeasibleError, UserError
from dse.saturation.advisor import LADDER, advise
from dse.saturation.constants import Constants, SaturationFit
from dse.saturation.model import Load
from dse.serving.layout import Layout
from dse.serving.slo import SLO
from tests import worlds

LOAD = Load(concurrency=1, isl_tokens=250, osl_tokens=250)
FIT = SaturationFit(
    gpu="unit",
    engine="unit@0",
    constants=Constants(
        weight_efficiency=0.95,
        kv_efficiency=0.85,
        compute_efficiency=0.7,
        launch_s=5e-6,
        step_s=5e-4,
        request_s=2e-5,
        prefill_layer_s=0.0,
        pool_use=0.9,
    ),
    intervals={},
    n_rows=1,
    rows="made for tests",
    residual_quantiles={},
    tpot_quantiles={},
    mape=0.0,
    median_ape=0.0,
    date="2026-01-01",
    source=worlds.SOURCE,
)


def mha_7b():
    """Llama-2-7B: 524,288 B of KV per token."""
    return worlds.dense("mha", n=32, d=4096, heads=32, kv=32, d_ff=11008, vocab=32000, d_head=128)


def advice(slo=None, tolerance=0.03, **changes):
    return advise(worlds.deployment(mha_7b(), **changes), LOAD, slo, tolerance, fit=FIT)


def test_the_cap_is_the_first_rung_within_tolerance():
    found = advice()
    rates = {point.batch_cap: point.throughput_tok_per_s for point in found.curve}
    best = max(rates.values())
    assert found.plateau_tok_per_s == best
    assert found.limited_by == "plateau"
    good = min(cap for cap, rate in rates.items() if rate >= 0.97 * best)
    assert found.batch_cap == min(rung for rung in LADDER if rung >= good)
    assert found.throughput_tok_per_s == rates[found.batch_cap]


def test_the_fit_own_error_is_kept_as_a_margin():
    unsure = replace(FIT, residual_quantiles={"0.9": 0.04}, tpot_quantiles={"0.05": -0.1})
    deployment, slo = worlds.deployment(mha_7b()), SLO(tpot_s=0.03)
    assert advise(deployment, LOAD, slo, fit=unsure).tpot_s <= 0.03 / 1.1
    assert 0.03 / 1.1 < advise(deployment, LOAD, slo, fit=FIT).tpot_s <= 0.03
    wide, tight = (advise(deployment, LOAD, fit=fit).batch_cap for fit in (FIT, unsure))
    assert tight > wide


def test_a_tighter_tolerance_asks_for_more():
    caps = [advice(tolerance=tolerance).batch_cap for tolerance in (0.3, 0.1, 0.03, 0.0)]
    assert caps == sorted(caps)
    assert caps[0] < caps[-1]


def test_the_latency_bound_wins_over_throughput():
    free = advice()
    bound = advice(SLO(tpot_s=0.6 * free.tpot_s))
    assert bound.limited_by == "latency"
    assert bound.tpot_s <= 0.6 * free.tpot_s
    assert bound.batch_cap < free.batch_cap
    point = next(each for each in bound.curve if each.batch_cap == bound.batch_cap)
    assert point.meets_slo
    assert point.latency_s == pytest.approx(bound.latency_s)


def test_bytes_needed_by_hand():
    found = advice()
    blocks = np.ceil(500 / 16) * 16
    assert found.kv_bytes_needed == found.batch_cap * blocks * 524_288
    assert found.kv_bytes_freed == pytest.approx(found.kv_pool_bytes - found.kv_bytes_needed)
    two = advice(layout=Layout(tp=2))
    assert two.kv_bytes_needed == two.batch_cap * blocks * 524_288 / 2


def test_uses_fit_into_what_is_freed():
    found = advice(SLO(tpot_s=0.025))
    replicas, longer, prefixes = found.uses
    assert replicas.amount == found.kv_bytes_freed // (
        worlds_weight_bytes() + found.kv_bytes_needed
    )
    assert longer.amount > 500
    grown = found.batch_cap * np.ceil(longer.amount / 16) * 16 * 524_288
    assert grown <= found.kv_pool_bytes
    assert prefixes.amount == pytest.approx(found.kv_bytes_freed / 524_288, rel=1e-3)


def worlds_weight_bytes():
    from dse.cost.memory import rank_memory

    deployment = worlds.deployment(mha_7b())
    return rank_memory(deployment, deployment.pools[0]).weight_bytes


def test_varying_lengths_need_a_margin():
    spread = Load(concurrency=1, isl_tokens=250, osl_tokens=250, osl_cv2=0.5)
    deployment = worlds.deployment(mha_7b())
    plain, wide = (advise(deployment, load, tolerance=0.03, fit=FIT) for load in (LOAD, spread))
    assert wide.kv_bytes_needed / wide.batch_cap > plain.kv_bytes_needed / plain.batch_cap


def test_no_cap_meets_an_impossible_bound():
    with pytest.raises(InfeasibleError, match=r"TPOT .* of 1 ms"):
        advice(SLO(tpot_s=1e-3))


def test_weights_that_leave_no_room():
    with pytest.raises(InfeasibleError, match="lacks"):
        advice(on=worlds.gpu(hbm_bytes=13e9))


def test_a_tolerance_is_a_share():
    with pytest.raises(UserError, match="tolerance"):
        advice(tolerance=3.0)


def test_the_kernel_model_prices_without_a_fit():
    found = advise(worlds.deployment(mha_7b()), LOAD)
    assert found.priced_by == "kernel model"
    assert found.batch_cap > 1
