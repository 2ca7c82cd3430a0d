"""Steps priced from tables: by hand, against the ops themselves, and their breakdown."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dse.cost.host import exposed_seconds, host_seconds
from dse.cost.kernels import kernel_model
from dse.cost.lower import program
from dse.cost.step import RankLoad, StepCost, compile_step, padded
from dse.cost.tables import cell, curve, octaves, sheet
from dse.cost.work import work
from dse.model.ops import Collective
from dse.serving.deployment import Deployment, SpeculativeDecoding
from dse.serving.engine import EngineHost
from dse.serving.layout import Layout
from dse.serving.schedulers import PrefillFirst, Static
from tests import worlds


def compiled(found: Deployment) -> StepCost:
    return compile_step(found, found.pools[0], "roofline")


def roofline_s(ops: Any, gpu: Any) -> float:
    """Σ of the slower of arithmetic and HBM over compute ops."""
    total = 0.0
    for counted in ops:
        if not isinstance(counted.op, Collective):
            done = work(counted.op)
            total += counted.count * max(done.flop_seconds(gpu), done.hbm_seconds(gpu))
    return total


def test_grid_points_price_like_the_ops() -> None:
    """At grid points nothing is interpolated: the step is the sum of its ops."""
    found = worlds.deployment(worlds.llama_8b())
    pool, parts = found.pools[0], program(found, found.pools[0])
    for n, context in ((1, 1024), (64, 2048), (256, 512)):
        ops = [*parts.token_ops(0, n), *parts.decode_ops(0, n, 1, context), *parts.head_ops(n)]
        step = compiled(found).seconds([RankLoad(n, float(n * context))])
        assert step.latency_s == pytest.approx(roofline_s(ops, pool.gpu), rel=1e-9)
        assert step.occupancy_s == step.latency_s
    ops = [*parts.token_ops(0, 2048), *parts.prefill_ops(0, 1, 2048, 64), *parts.head_ops(1)]
    chunk = compiled(found).seconds([RankLoad(chunks=((2048, 64),))])
    assert chunk.latency_s == pytest.approx(roofline_s(ops, pool.gpu), rel=1e-9)


@pytest.mark.parametrize("model", [worlds.tiny(), worlds.mixture(), worlds.sliding_hybrid()])
def test_between_grid_points_within_two_percent(model: Any) -> None:
    found = worlds.deployment(model, layout=Layout(tp=2))
    cost, parts = compiled(found), program(found, found.pools[0])
    gpu = found.pools[0].gpu
    for n, context in ((3, 700), (37, 1500), (201, 5000)):
        ops = [
            *parts.token_ops(0, padded(n, 8)),
            *parts.group_ops(0, padded(n, 8)),
            *parts.decode_ops(0, n, 1, context),
            *parts.head_ops(n),
        ]
        gpu_s = sum(
            seconds
            for family, seconds in cost.breakdown([RankLoad(n, float(n * context))]).items()
            if not family.startswith(("all_", "reduce", "host", "wait"))
        )
        assert gpu_s == pytest.approx(roofline_s(ops, gpu), rel=0.02)


def test_breakdown_is_whole() -> None:
    host = EngineHost(step_s=1e-3, request_s=1e-5, prefill_token_s=0.0, arrival_s=0.0)
    found = worlds.deployment(
        worlds.mixture(), layout=Layout(dp=2, ep=2, pp=2), by=worlds.engine(host=host)
    )
    loads = [RankLoad(5, 900.0, ((128, 64), (16, 0))), RankLoad(2, 100.0)]
    cost = compiled(found)
    parts = cost.breakdown(loads)
    assert sum(parts.values()) == pytest.approx(cost.seconds(loads).occupancy_s)
    assert parts["host"] == pytest.approx(1e-3 + 7e-5)
    assert parts["wait"] > 0


def test_the_slowest_rank_sets_the_step() -> None:
    found = worlds.deployment(worlds.tiny(), layout=Layout(dp=2))
    cost = compiled(found)
    busy, idle = RankLoad(64, 64 * 4000.0), RankLoad()
    assert cost.seconds([busy, idle]).latency_s == cost.seconds([idle, busy]).latency_s
    both = cost.seconds([busy, busy]).latency_s
    assert cost.seconds([busy, idle]).latency_s == pytest.approx(both, rel=1e-9)


def test_pipeline_adds_stages_for_latency_and_takes_the_slowest_for_occupancy() -> None:
    whole = worlds.deployment(worlds.llama_8b())
    split = worlds.deployment(worlds.llama_8b(), layout=Layout(pp=4))
    load = [RankLoad(8, 8 * 1000.0)]
    one, four = compiled(whole).seconds(load), compiled(split).seconds(load)
    assert four.occupancy_s < one.occupancy_s / 2
    assert four.latency_s >= one.latency_s


def test_drafts_are_verified_and_paid_for() -> None:
    model = worlds.deepseek_v3(speculative=True)
    layout = Layout(tp=8, ep=8)
    plain = worlds.deployment(model, layout=layout, precision=worlds.FP8_BLOCK)
    drafts = SpeculativeDecoding(method="mtp", n_draft=2, acceptance=0.8)
    drafting = replace(plain, speculative=drafts)
    load = [RankLoad(16, 16 * 1000.0)]
    one, three = compiled(plain).seconds(load), compiled(drafting).seconds(load)
    assert one.latency_s < three.latency_s < 3 * one.latency_s
    assert compiled(drafting).q_tokens == 3


@pytest.mark.parametrize("scheduler", [PrefillFirst(), Static()])
def test_a_prompt_computed_whole_costs_the_same_whatever_the_budget(scheduler: Any) -> None:
    """Such a prompt may be longer than the budget of a step: its attention grows with the square
    all the same.
    """
    seconds = [
        compiled(
            worlds.deployment(
                worlds.llama_8b(),
                by=worlds.engine(scheduler=scheduler, max_num_batched_tokens=budget),
            )
        ).prefill_seconds(65536)
        for budget in (512, 8192)
    ]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-9)


def test_launch_overlap_never_goes_below_the_roofline() -> None:
    gpu = worlds.gpu(name="h100-sxm", architecture="hopper")
    host = EngineHost(step_s=0, request_s=0, prefill_token_s=0, arrival_s=0, launch_overlap=1.0)
    load = [RankLoad(1, 100.0)]
    found = {}
    for name, engine in (("plain", worlds.engine()), ("graph", worlds.engine(host=host))):
        deployment = worlds.deployment(worlds.llama_8b(), on=gpu, by=engine)
        cost = compile_step(
            deployment, deployment.pools[0], kernels=kernel_model(gpu, None, "cross")
        )
        found[name] = cost.seconds(load).latency_s
        floor = compiled(deployment).seconds(load).latency_s
    assert floor <= found["graph"] < found["plain"]


def test_host_is_added_or_hidden() -> None:
    host = EngineHost(step_s=1e-3, request_s=1e-5, prefill_token_s=1e-7, arrival_s=0.0)
    spent = host_seconds(host, 10, 1000)
    assert spent == pytest.approx(1e-3 + 1e-4 + 1e-4)
    assert exposed_seconds(host, 5e-3, spent) == spent
    hidden = replace(host, overlapped=True)
    assert exposed_seconds(hidden, 5e-3, spent) == 0.0
    assert exposed_seconds(hidden, 1e-3, spent) == pytest.approx(2e-4)


def test_graph_padding() -> None:
    assert [padded(n, 8) for n in (1, 2, 3, 4, 5, 9, 512, 513)] == [1, 2, 4, 4, 8, 16, 512, 513]
    assert padded(7, 1) == 7


def test_octaves_rise_and_cover() -> None:
    for top in (1, 2, 3, 17, 256, 8192, 131072):
        points = octaves(top)
        assert len(points) >= 2
        assert (np.diff(points) > 0).all()
        assert points[-1] >= top


def test_interpolation_by_hand() -> None:
    xs, ys = [1.0, 2.0, 4.0], [10.0, 20.0, 60.0]
    assert [curve(x, xs, ys) for x in (0, 1, 1.5, 3, 5)] == [0.0, 10.0, 15.0, 40.0, 80.0]
    zs = [[0.0, 10.0], [20.0, 30.0]]
    assert sheet(1.5, 0.5, [1.0, 2.0], [0.0, 1.0], zs) == 15.0
    assert [cell(x, xs) for x in (0.5, 1.0, 1.9, 2.0, 9.0)] == [0, 0, 0, 1, 1]


def test_ideal_times_broadcast() -> None:
    cost = compiled(worlds.deployment(worlds.tiny(), layout=Layout(dp=2)))
    table = cost.decode_seconds(np.array([[2.0], [64.0]]), np.array([100.0, 1000.0, 4000.0]))
    assert table.shape == (2, 3)
    assert (np.diff(table, axis=0) >= 0).all()
    assert (np.diff(table, axis=1) >= 0).all()
    alone = cost.seconds([RankLoad(32, 32 * 1000.0)] * 2).occupancy_s
    assert table[1, 1] == pytest.approx(alone)
    assert cost.prefill_seconds(256) < cost.prefill_seconds(256, 4096)
