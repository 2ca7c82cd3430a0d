"""Coefficients of a step: the account again, term by term, from a few numbers."""

import pytest

from dse.cost.account import decode_floor, prefill_floor
from dse.cost.coefficients import coefficients, fit_curve, message_seconds, seconds
from dse.model.ffn import Routing
from dse.serving.layout import Layout
from tests import worlds

MODELS = (
    worlds.tiny(),
    worlds.mixture(),
    worlds.sliding_hybrid(),
    worlds.linear_hybrid(),
    worlds.deepseek_v3(),
    worlds.deepseek_v3(sparse=True),
)
LAYOUTS = (Layout(), Layout(tp=2, pp=2), Layout(dp=2))


def rebuilt(known, pool, n_requests, context):
    """Seconds by resource of a decode step, from the coefficients."""
    layout, gpu, q = pool.layout, pool.gpu, known.q_tokens
    n = -(-n_requests // (layout.dp * layout.pp))
    in_group = max(n_requests / layout.pp, n) * q
    found = dict.fromkeys(("hbm", "flop", "sfu"), 0.0)
    parts = [(known.step, 1), (known.token, n * q), (known.row, n * q), (known.group, in_group)]
    parts += [(known.context.fixed, n), (known.context.slope, n * context)]
    parts += [
        (cap, n * min(context, knot))
        for knot, cap in zip(known.context.knots, known.context.caps, strict=True)
    ]
    for amounts, scale in parts:
        for resource, value in seconds(amounts, gpu).items():
            found[resource] += scale * value
    found["hbm"] += known.experts.touched_bytes(in_group) / gpu.hbm_bytes_per_s
    latency, token = message_seconds(known.messages, pool.fabric)
    _, group = message_seconds(known.group_messages, pool.fabric)
    row_latency, row = message_seconds(known.row_messages, pool.fabric)
    net = latency + row_latency + n * q * (token + row) + in_group * group
    return found | {"net": net}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("layout", LAYOUTS, ids=Layout.label)
def test_decode_step_from_coefficients(model, layout):
    deployment = worlds.deployment(model, layout=layout, precision=worlds.FP8_BLOCK)
    pool = deployment.pools[0]
    known = coefficients(deployment, pool)
    for n_requests in (1, 8, 64):
        for context in (1, 1500, 100_000):
            floor = decode_floor(deployment, pool, n_requests, context)
            spilled = sum(t.seconds for t in floor.terms if t.name == "activations")
            found = rebuilt(known, pool, n_requests, context)
            assert found["hbm"] == pytest.approx(floor.t_hbm_s - spilled, rel=1e-6)
            assert found["flop"] == pytest.approx(floor.seconds("flop"), rel=1e-6)
            assert found["sfu"] == pytest.approx(floor.seconds("sfu"), rel=1e-6)
            assert found["net"] == pytest.approx(floor.t_net_s, rel=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_positions_of_a_prompt_add_up_to_its_attention(model):
    deployment = worlds.deployment(model, precision=worlds.FP8_BLOCK)
    pool = deployment.pools[0]
    known, n = coefficients(deployment, pool), 5_000

    def below(knot):
        inside = min(n, knot)
        return inside * inside / 2 + knot * (n - inside)

    curve = known.position
    total = seconds(curve.slope, pool.gpu)["flop"] * n * n / 2
    for knot, cap in zip(curve.knots, curve.caps, strict=True):
        total += seconds(cap, pool.gpu)["flop"] * below(knot)
    total += seconds(curve.fixed, pool.gpu)["flop"] * n
    floor = prefill_floor(deployment, pool, n, 0)
    attention = sum(t.seconds for t in floor.terms if (t.resource, t.name) == ("flop", "attention"))
    assert total <= attention * (1 + 1e-9)
    # A query at the very knot is averaged over half a token.
    assert total == pytest.approx(attention, rel=1e-3)


def test_union_of_skewed_experts_is_bounded_from_below():
    for exponent in (0.0, 0.6, 1.0):
        routing = Routing(kind="zipf", exponent=exponent) if exponent else Routing()
        deployment = worlds.deployment(worlds.mixture(), routing=routing)
        experts = coefficients(deployment, deployment.pools[0]).experts
        expert_bytes = 2 * 3 * 128 * 64
        for n in (1, 4, 64):
            union = 2 * expert_bytes * routing.touched(n, 16, 2)
            assert experts.touched_bytes(n) <= union * (1 + 1e-9)
            if n == 1 or not exponent:
                assert experts.touched_bytes(n) == pytest.approx(union)


def test_curve_with_knots_is_exact_and_concave_ones_are_bounded():
    def function(x):
        return {"hbm": 3.0 + 2.0 * x + 5.0 * min(x, 100.0) + min(x, 1000.0)}

    curve = fit_curve(function, (100.0, 1000.0))
    assert curve.slope["hbm"] == pytest.approx(2.0)
    assert [cap["hbm"] for cap in curve.caps] == pytest.approx([5.0, 1.0])
    loose = fit_curve(function, (1000.0,))
    for x in (1.0, 50.0, 500.0, 5_000.0):
        value = 3.0 + loose.slope["hbm"] * x + loose.caps[0]["hbm"] * min(x, 1000.0)
        assert value <= function(x)["hbm"] * (1 + 1e-9)
