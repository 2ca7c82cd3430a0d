"""Triage on a world of round numbers, where floors are sums by hand."""

from dataclasses import replace

import pytest

from dse.base.errors import UserError
from dse.cost.account import decode_floor
from dse.evidence.triage import Thresholds, regime_of, thresholds, triage
from dse.serving.deployment import SpeculativeDecoding
from tests import worlds

LIMITS = Thresholds(
    escalate=1.3,
    decode_mbu_good=0.7,
    decode_mbu_poor=0.4,
    prefill_mfu_good=0.5,
    prefill_mfu_poor=0.25,
    source="test",
)


def _floor(n_requests: float = 8, context_tokens: float = 8192):
    world = worlds.deployment(worlds.llama_8b())
    return world, decode_floor(world, world.pools[0], n_requests, context_tokens)


def test_a_measurement_inside_the_interval_reads_out_overlap():
    world, floor = _floor()
    middle = (float(floor.t_opt_s) + float(floor.t_sum_s)) / 2
    found = triage(world, middle, n_requests=8, context_tokens=8192, limits=LIMITS)
    assert found.verdict == "inside"
    assert found.position == pytest.approx(0.5)
    assert found.overlap_quality == pytest.approx(0.5)
    assert found.residual == pytest.approx(middle / float(floor.t_opt_s))


@pytest.mark.parametrize(
    ("factor_of", "factor", "verdict"),
    [("opt", 0.99, "below_floor"), ("sum", 1.01, "residual"), ("opt", 3.0, "escalate")],
)
def test_the_verdict_follows_the_interval_and_the_threshold(factor_of, factor, verdict):
    world, floor = _floor()
    edge = float(floor.t_opt_s if factor_of == "opt" else floor.t_sum_s)
    found = triage(world, factor * edge, n_requests=8, context_tokens=8192, limits=LIMITS)
    assert found.verdict == verdict
    assert found.overlap_quality is None


def test_the_budget_adds_up_to_the_measurement_beyond_the_sum():
    world, floor = _floor()
    measured = 2 * float(floor.t_sum_s)
    found = triage(world, measured, n_requests=8, context_tokens=8192, limits=LIMITS)
    slack = sum(line.seconds for line in found.budget if line.resource != "sfu")
    assert slack == pytest.approx(measured)
    assert found.budget[-1].resource == "unexplained"
    assert found.budget[-1].share == pytest.approx(0.5)
    assert "host" in found.question


def test_mbu_is_bytes_of_weights_and_kv_over_time_and_bandwidth():
    world, _ = _floor(n_requests=1, context_tokens=1024)
    found = triage(world, 0.02, n_requests=1, context_tokens=1024, limits=LIMITS)
    # 8.03e9 parameters less the embedding in bf16, read once; 131,072 B per token of KV.
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    kv = 131_072 * 1024
    assert found.mbu == pytest.approx((weights + kv) / 0.02 / 1e12, rel=1e-3)
    assert found.band == "good"


def test_speculation_measures_a_step_of_several_tokens():
    drafts = SpeculativeDecoding(method="draft", n_draft=1, acceptance=0.5)
    world = worlds.deployment(worlds.llama_8b(), speculative=drafts)
    found = triage(world, 0.02, n_requests=1, context_tokens=1024, limits=LIMITS)
    assert found.measured_s == pytest.approx(0.03)


def test_prefill_is_judged_by_its_own_floor():
    world = worlds.deployment(worlds.llama_8b())
    found = triage(world, 1.0, phase="prefill", context_tokens=4096, limits=LIMITS)
    assert found.binding == "flop"
    # 2 FLOP a parameter and token (less the embedding) and attention, over 100 TFLOP/s.
    assert 0.5 < found.mfu < 0.8


def test_a_time_that_is_not_positive_is_refused():
    world, _ = _floor()
    with pytest.raises(UserError, match="positive"):
        triage(world, 0.0)
    with pytest.raises(UserError, match="positive"):
        triage(world, float("nan"))


def test_the_shipped_thresholds_have_a_source():
    found = thresholds()
    assert found.escalate >= 1
    assert found.source


def test_a_regime_has_a_threshold_of_its_own():
    world, floor = _floor(n_requests=8)
    limits = replace(LIMITS, regimes={"dense ≤ 16": 4.0})
    measured = 3.0 * float(floor.t_opt_s)
    few = triage(world, measured, n_requests=8, context_tokens=8192, limits=limits)
    assert few.verdict == "residual"
    assert few.thresholds.escalate == 4.0
    _, floor = _floor(n_requests=17)
    measured = 3.0 * float(floor.t_opt_s)
    many = triage(world, measured, n_requests=17, context_tokens=8192, limits=limits)
    assert many.verdict == "escalate"
    assert many.thresholds.escalate == LIMITS.escalate


@pytest.mark.parametrize(
    ("n", "is_moe", "regime"), [(16, True, "MoE ≤ 16"), (16.5, False, "dense > 16")]
)
def test_regimes_are_named_by_class_and_batch(n, is_moe, regime):
    assert regime_of(n, is_moe=is_moe) == regime
