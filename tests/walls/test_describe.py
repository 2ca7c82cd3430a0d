"""One deployment described: the keys of the machine contract, orders, ceilings and elasticities."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dse.cost.account import decode_floor
from dse.cost.memory import rank_memory
from dse.serving.layout import Layout
from dse.serving.slo import SLO
from dse.walls.ceiling import first_true, goodput_ceiling, step_times, wall_order
from dse.walls.describe import describe
from dse.walls.elasticity import elasticities
from dse.walls.explain import Asked, explain, smallest_changes
from dse.walls.fewest import fewest_gpus
from tests import worlds

KEYS = {
    "memory",
    "kv_pool_tokens",
    "n_blocks",
    "b_max",
    "steps",
    "wall_order",
    "ridge_flop_per_byte",
    "goodput_ceiling_tok_per_s_per_gpu",
    "elasticities",
    "legal",
    "illegal_reasons",
}
MEMORY = {
    "weight_bytes_per_gpu",
    "kv_bytes_per_token",
    "kv_fixed_bytes_per_request",
    "kv_bytes_per_request",
    "kv_pool_bytes_per_gpu",
    "overheads",
}
STEP = {"t_hbm_s", "t_flop_s", "t_net_s", "t_opt_s", "t_sum_s", "terms", "binding"}


def test_keys_of_the_machine_contract():
    found = describe(worlds.deployment(worlds.mixture(), layout=Layout(tp=2)))
    assert set(found) >= KEYS
    assert set(found["memory"]) >= MEMORY
    for step in found["steps"].values():
        assert set(step) >= STEP
        assert all(
            set(term) == {"resource", "name", "amount", "unit", "seconds"} for term in step["terms"]
        )
    json.dumps(found)


def test_illegal_and_non_fitting_are_not_legal():
    illegal = describe(worlds.deployment(worlds.tiny(), layout=Layout(tp=3)))
    assert not illegal["legal"]
    assert any("heads 8 % TP 3 = 2" in reason for reason in illegal["illegal_reasons"])
    assert illegal["memory"] is None
    small = describe(worlds.deployment(worlds.tiny(), on=worlds.gpu(hbm_bytes=1e6)))
    assert not small["legal"]
    assert "GiB" in small["illegal_reasons"][0]
    assert small["b_max"] == 0


def test_gpus_that_a_replica_does_not_divide():
    found = describe(worlds.deployment(worlds.tiny(), layout=Layout(tp=2)), gpus=3)
    assert found["illegal"][0]["nearest"] == ("gpus=2", "gpus=4")


def test_single_stream_says_that_the_sum_is_honest():
    one = describe(worlds.deployment(worlds.tiny()))["steps"]["decode"]
    many = describe(worlds.deployment(worlds.tiny()), concurrency=8)["steps"]["decode"]
    assert "t_sum" in one["note"]
    assert many["note"] == ""
    assert many["n_requests"] == 8


def test_wall_order_is_where_each_resource_breaks_alone():
    deployment = worlds.deployment(worlds.llama_8b())
    pool = deployment.pools[0]
    order = wall_order(deployment, pool, context_tokens=4096, requests_max=100, slo_tpot_s=0.1)
    assert [each.concurrency for each in order] == sorted(each.concurrency for each in order)
    for each in order:
        if each.wall != "kv_capacity":
            at, before = (
                float(getattr(decode_floor(deployment, pool, n, 4096), f"t_{each.wall}_s"))
                for n in (each.concurrency, each.concurrency - 1)
            )
            assert before <= 0.1 < at


def test_mixture_of_two_batches_beats_one_where_time_is_concave():
    # Two batches mixed keep the mean bound; no single one does better.
    deployment = worlds.deployment(worlds.deepseek_v3(), layout=Layout(tp=8))
    pool = deployment.pools[0]
    batches = np.arange(1.0, 257.0)
    floor = decode_floor(deployment, pool, batches, 1024)
    latency, cycle = step_times(floor, batches, pool.layout.pp)
    assert np.all(np.diff(latency) >= -1e-15)
    slo = float(latency[40])
    single = float(np.max((batches / cycle)[latency <= slo]))
    mixed = goodput_ceiling(deployment, pool, context_tokens=1024, requests_max=256, slo_tpot_s=slo)
    assert mixed >= single
    free = goodput_ceiling(deployment, pool, context_tokens=1024, requests_max=256)
    assert free >= mixed


def test_ceiling_is_zero_where_even_one_request_is_late():
    deployment = worlds.deployment(worlds.llama_8b())
    assert (
        goodput_ceiling(
            deployment, deployment.pools[0], context_tokens=100, requests_max=10, slo_tpot_s=1e-9
        )
        == 0
    )


def test_first_true():
    for first in (1, 2, 3, 37, 511, 512):
        assert first_true(lambda n, first=first: n >= first, 1000) == first
    assert first_true(lambda n: n >= 700_001, 2**20) == 700_001
    assert first_true(lambda n: n < 0, 1000) is None


def test_elasticities_are_those_of_whole_deployments():
    # They count the work of a step once; here each deployment is asked for itself.
    deployment = worlds.deployment(
        worlds.deepseek_v3(), layout=Layout(tp=8), on=worlds.gpu(hbm_bytes=200e9)
    )
    asked = {"context_tokens": 4096, "concurrency": 8, "slo_tpot_s": 0.04}
    rows = {each["fact"]: each for each in elasticities(deployment, **asked)}
    for name in ("hbm_bytes", "hbm_bytes_per_s"):
        ceilings, steps = [], []
        for by in (0.99, 1.01):
            pool = deployment.pools[0]
            gpu = replace(pool.gpu, **{name: getattr(pool.gpu, name) * by})
            pool = replace(pool, gpu=gpu)
            whole = replace(deployment, pools=(pool,))
            memory = rank_memory(whole, pool)
            room = memory.dp * max(0.0, memory.kv_pool_bytes) / memory.request_bytes(4096)
            given = {"context_tokens": 4096, "requests_max": room, "slo_tpot_s": 0.04}
            ceilings.append(goodput_ceiling(whole, pool, **given))
            steps.append(float(decode_floor(whole, pool, 8, 4096).t_opt_s))
        for quantity, (low, high) in (("goodput_ceiling", ceilings), ("decode_t_opt", steps)):
            slope = (high - low) / ((high + low) / 2) / 0.02
            assert rows[f"gpu.{name}"][quantity] == pytest.approx(slope, abs=1e-12)


def test_elasticity_of_a_memory_bound_step_is_one():
    found = describe(worlds.deployment(worlds.llama_8b()))["elasticities"]
    rows = {row["fact"]: row for row in found}
    assert rows["gpu.hbm_bytes_per_s"]["decode_t_opt"] == pytest.approx(-1.0, abs=0.01)
    assert rows["gpu.hbm_bytes_per_s"]["goodput_ceiling"] == pytest.approx(1.0, abs=0.01)
    assert rows["gpu.hbm_bytes"]["b_max"] > 1.0


def test_fewest_gpus_is_minimal():
    # 16 GB of weights on GPUs of 10 GB: two are the fewest.
    deployment = worlds.deployment(worlds.llama_8b(), on=worlds.gpu(hbm_bytes=10e9))
    found = fewest_gpus(deployment, context_tokens=1000, concurrency=1)
    assert found["n_gpus"] == 2
    assert found["near_misses"][-1]["n_gpus"] == 1
    assert "lacks" in found["near_misses"][-1]["problem"]
    more = fewest_gpus(deployment, context_tokens=8000, concurrency=64)
    assert more["n_gpus"] > 2
    assert more["best"]["b_max"] >= 64


def test_fewest_gpus_says_why_no_size_will_do():
    on = worlds.gpu(peak_flop_per_s={"bf16": 1e14})
    deployment = worlds.deployment(worlds.llama_8b(), on=on, precision=worlds.FP8_BLOCK)
    found = fewest_gpus(deployment, context_tokens=1000, concurrency=1)
    assert found["n_gpus"] is None
    assert any("no fp8 tensor cores" in reason for reason in found["illegal_reasons"])


def test_fewest_gpus_heeds_the_slo():
    deployment = worlds.deployment(worlds.llama_8b())
    slow = fewest_gpus(deployment, context_tokens=1000, concurrency=1)
    fast = fewest_gpus(
        deployment, context_tokens=1000, concurrency=1, slo=SLO(tpot_s=0.010, ttft_s=10.0)
    )
    assert slow["n_gpus"] == 1 < fast["n_gpus"]
    hopeless = fewest_gpus(deployment, context_tokens=1000, concurrency=1, slo=SLO(tpot_s=1e-9))
    assert hopeless["n_gpus"] is None


def asked(**changes):
    facts = {
        "isl_low_tokens": 1000,
        "osl_low_tokens": 100,
        "osl_high_tokens": 100,
        "slo": SLO(tpot_s=0.05, ttft_s=1.0),
        "concurrency": 16,
        "n_requests": 160,
    }
    return Asked(**facts | changes)


def test_explained_verdict_and_a_change_that_does():
    deployment = worlds.deployment(worlds.llama_8b(), on=worlds.gpu(hbm_bytes=10e9))
    found = explain(deployment, asked())
    assert (found["status"], found["killed_by"], found["unit"]) == ("killed", "hbm", "bytes")
    assert found["margin"] == pytest.approx(found["demand"] / found["limit"] - 1)
    assert found["margin"] > 0
    assert any(change.startswith("gpus=2") for change in found["nearest_feasible"])
    assert any(change.startswith("weights=fp8") for change in found["nearest_feasible"])


def test_survivor_has_nothing_to_explain():
    found = explain(worlds.deployment(worlds.tiny()), asked())
    assert (found["status"], found["killed_by"], found["nearest_feasible"]) == (
        "survivor",
        None,
        [],
    )
    assert all(wall["margin"] is None or wall["margin"] <= 0 for wall in found["walls"])


def test_illegal_point_is_explained_by_legality():
    found = explain(worlds.deployment(worlds.tiny(), layout=Layout(tp=3)), asked())
    assert found["killed_by"] == "legality"
    assert "tp=2" in found["nearest_feasible"]


def test_load_beyond_the_ceiling_may_shrink():
    deployment = worlds.deployment(worlds.llama_8b())
    heavy = asked(concurrency=50_000, n_requests=500_000)
    assert explain(deployment, heavy)["killed_by"] == "goodput_ceiling"
    changes = smallest_changes([(deployment, heavy)])[0]
    assert any(change.startswith("concurrency=") for change in changes)


def test_changes_of_many_points_are_those_of_each():
    deployment = worlds.deployment(worlds.llama_8b())
    small = worlds.deployment(worlds.llama_8b(), on=worlds.gpu(hbm_bytes=10e9))
    points = [
        (deployment, asked(concurrency=50_000, n_requests=500_000)),
        (small, asked(concurrency=8, n_requests=80)),
    ]
    each = [smallest_changes([point])[0] for point in points]
    assert smallest_changes(points) == each
    assert each[0] != each[1]
    assert smallest_changes([]) == []


def test_experts_of_the_mean_and_the_fullest_rank():
    # DeepSeek-V3, EP16, 16 tokens: 6.4 of 16 experts on the mean rank; Zipf 0.6 and 1 touch 0.88
    # and 0.68 of that.
    layout = Layout(dp=16, ep=16)
    deployment = worlds.deployment(worlds.deepseek_v3(), layout=layout, precision=worlds.FP8_BLOCK)
    rows = describe(deployment, concurrency=16)["expert_sensitivity"]
    assert [row["routing"] for row in rows] == ["uniform", "zipf:0.6", "zipf:1"]
    means = [row["experts_mean_rank"] for row in rows]
    assert means[0] == pytest.approx(6.4, abs=0.05)
    assert [mean / means[0] for mean in means] == pytest.approx([1.0, 0.88, 0.68], abs=0.01)
    assert rows[0]["experts_fullest_rank"] == pytest.approx(9.7, abs=0.15)
    assert all(row["experts_fullest_rank"] > row["experts_mean_rank"] for row in rows)
    assert describe(worlds.deployment(worlds.tiny()))["expert_sensitivity"] == []


def test_a_step_over_more_requests_than_fit_says_that_they_queue():
    deployment = worlds.deployment(worlds.mixture())
    room = describe(deployment, context_tokens=128)["b_max"]
    note = describe(deployment, context_tokens=128, concurrency=room + 1)["steps"]["decode"]["note"]
    assert f"holds the KV of {room} such requests" in note
    assert "queue" not in describe(deployment, context_tokens=128)["steps"]["decode"]["note"]


def test_a_pool_beyond_every_integer_is_still_described():
    found = describe(worlds.deployment(worlds.mixture(), kv_pool_bytes=1e39))
    assert found["goodput_ceiling_tok_per_s_per_gpu"] > 0


def test_the_smallest_change_is_what_the_broken_wall_asks_for():
    deployment = worlds.deployment(worlds.llama_8b())
    late = asked(slo=SLO(ttft_s=1e-5), isl_low_tokens=4096)
    need = explain(deployment, late)
    assert need["killed_by"] == "ttft_floor"
    bound = float(need["nearest_feasible"][0].removeprefix("slo_ttft_s="))
    assert need["demand"] <= bound <= 1.001 * need["demand"]
    small = worlds.deployment(worlds.llama_8b(), on=worlds.gpu(hbm_bytes=10e9))
    short = explain(small, asked(slo=SLO()))
    assert short["killed_by"] == "hbm"
    more = next(each for each in short["nearest_feasible"] if each.startswith("gpu.hbm="))
    assert short["demand"] <= float(more.removeprefix("gpu.hbm=")) <= 1.02 * short["demand"]
    most = deployment.model.max_context_tokens
    lengths = {"isl_low_tokens": most, "osl_low_tokens": 8, "osl_high_tokens": 8}
    long = explain(deployment, asked(slo=SLO(), **lengths))
    assert f"context={most - 8}/8" in long["nearest_feasible"]


def test_a_change_that_mends_several_rules_is_named_once():
    model = worlds.mixture_of(n_experts=16, top_k=2, d_expert=64, heads=8, kv=8)
    found = explain(worlds.deployment(model, layout=Layout(tp=3)), asked())["nearest_feasible"]
    assert found == list(dict.fromkeys(found)) == ["tp=2", "tp=4", "ep=2"]
