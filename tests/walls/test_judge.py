"""Verdicts over frames: by hand, order, missing facts, and what more hardware may never cost."""

import math
from dataclasses import replace

import polars as pl
import pytest

from dse.cost.account import decode_floor, prompt_floor_s
from dse.serving.deployment import Pool
from dse.serving.layout import Layout
from dse.serving.slo import SLO
from dse.walls.explain import Asked, judged_points
from dse.walls.facts import FactsCache, facts_of, longest_request_tokens
from dse.walls.judge import facts_frame, judge, optimistic, question_columns, standard_walls
from tests import worlds


def asked(**changes):
    facts = {
        "isl_low_tokens": 100,
        "osl_low_tokens": 20,
        "osl_high_tokens": 20,
        "slo": SLO(tpot_s=1.0, ttft_s=1.0),
        "concurrency": 4,
        "n_requests": 40,
    }
    return Asked(**facts | changes)


def verdict(deployment, **changes):
    return judged_points([(deployment, asked(**changes))], FactsCache())[0]


def test_a_tiny_model_survives():
    assert verdict(worlds.deployment(worlds.tiny()))["killed_by"] is None


def test_weights_that_do_not_fit():
    found = verdict(worlds.deployment(worlds.tiny(), on=worlds.gpu(hbm_bytes=1e6)))
    assert found["killed_by"] == "hbm"
    weights = 2 * (2 * (2 * (128 * 256 + 8 * 16 * 128 + 3 * 128 * 256) // 2 + 2 * 128))
    assert found["hbm_limit_bytes"] == 1e6
    assert found["hbm_demand_bytes"] > weights


def test_no_room_for_one_request_kills_more_requests_do_not():
    def room(requests):
        per_request = 2 * 4 * 32 * 2 * 128
        return worlds.deployment(worlds.tiny(), kv_pool_bytes=requests * per_request)

    assert verdict(room(0.5))["killed_by"] == "kv_capacity"
    assert verdict(room(1.0))["killed_by"] is None
    assert verdict(room(1.0), concurrency=1000, n_requests=10_000, slo=SLO())["killed_by"] is None


def test_tpot_floor_is_t_opt_at_batch_one():
    deployment = worlds.deployment(worlds.mixture(), layout=Layout(tp=2))
    floor = decode_floor(deployment, deployment.pools[0], 1, 100).t_opt_s
    found = verdict(deployment, slo=SLO(tpot_s=0.99 * floor))
    assert found["tpot_floor_demand_s"] == pytest.approx(float(floor))
    assert found["killed_by"] == "tpot_floor"
    assert verdict(deployment, slo=SLO(tpot_s=1.01 * floor))["killed_by"] is None


def test_tpot_is_undefined_for_one_token():
    one = {"osl_low_tokens": 1, "osl_high_tokens": 1, "slo": SLO(tpot_s=1e-9)}
    assert verdict(worlds.deployment(worlds.tiny()), **one)["killed_by"] is None


def test_ttft_floor_is_close_below_the_sum_of_chunks():
    by = worlds.engine(max_num_batched_tokens=256)
    for model in (worlds.tiny(), worlds.mixture(), worlds.llama_8b()):
        deployment = worlds.deployment(model, by=by)
        exact = prompt_floor_s(deployment, deployment.pools[0], 1000)
        found = verdict(deployment, isl_low_tokens=1000)["ttft_floor_demand_s"]
        assert 0.6 * exact <= found <= exact * (1 + 1e-9)


def test_shared_prefix_is_neither_computed_nor_stored_twice():
    deployment = worlds.deployment(worlds.llama_8b())
    plain, shared = (verdict(deployment, isl_low_tokens=4000, shared_tokens=n) for n in (0, 3000))
    assert shared["ttft_floor_demand_s"] < plain["ttft_floor_demand_s"]
    assert shared["output_tok_per_s_per_gpu"] > plain["output_tok_per_s_per_gpu"]


def test_goodput_ceiling_kills_only_loads():
    slo = SLO(tpot_s=0.02, ttft_s=0.5)
    deployment = worlds.deployment(worlds.llama_8b())
    light = verdict(deployment, slo=slo, concurrency=1, n_requests=10)
    heavy = verdict(deployment, slo=slo, concurrency=20_000, n_requests=200_000)
    assert light["killed_by"] is None
    assert heavy["killed_by"] == "goodput_ceiling"


def test_longer_than_the_model_reaches():
    assert (
        verdict(worlds.deployment(worlds.tiny()), isl_low_tokens=131_072)["killed_by"] == "context"
    )


def test_budget_at_the_ceiling():
    deployment = worlds.deployment(worlds.llama_8b())
    frame = facts_frame([0], [facts_of(deployment)], on="row").lazy()
    points = frame.with_columns(
        isl_tokens=100, osl_tokens=100, usd_per_gpu_hour=2.0, usd_per_mtok_limit=1e-6
    ).with_columns(**question_columns())
    found = judge(optimistic(points)).collect().row(0, named=True)
    # 2 USD/h at R tok/s is 2 / 3600 / R · 1e6 USD a million.
    expected = 2.0 / 3600 / found["output_tok_per_s_per_gpu"] * 1e6
    assert found["budget_demand_usd_per_mtok"] == pytest.approx(expected)
    assert found["killed_by"] == "budget"


def test_order_of_walls_and_legality_first():
    frame = facts_frame([0, 1], [facts_of(worlds.deployment(worlds.tiny())), None], on="row")
    points = frame.lazy().with_columns(isl_tokens=100, osl_tokens=20)
    points = points.with_columns(**question_columns(), illegal=pl.Series([None, "heads 8 % TP 3"]))
    assert judge(points).sort("row").collect()["killed_by"].to_list() == [None, "legality"]
    kinds = [wall.kind for wall in standard_walls()]
    assert kinds[:4] == ["context", "domain", "hbm", "kv_capacity"]


@pytest.mark.parametrize("missing", [None, math.nan])
@pytest.mark.parametrize("name", ["hbm_needed_bytes", "hbm_limit_bytes"])
def test_a_missing_fact_is_not_feasible(name, missing):
    facts = facts_of(worlds.deployment(worlds.tiny())) | {name: missing}
    frame = facts_frame([0], [facts], on="row").lazy()
    points = frame.with_columns(isl_tokens=100, osl_tokens=20).with_columns(**question_columns())
    assert judge(points).collect()["killed_by"].to_list() == ["hbm"]


def test_every_row_and_column_is_kept():
    frame = facts_frame([0], [facts_of(worlds.deployment(worlds.tiny()))], on="row").lazy()
    numbers = pl.LazyFrame({"isl_tokens": [100, 1000], "osl_tokens": [20, 20], "mark": ["a", "b"]})
    points = frame.join(numbers, how="cross").with_columns(**question_columns())
    judged = judge(points).collect()
    assert judged.height == 2
    assert set(points.collect_schema().names()) < set(judged.columns)
    assert judged.schema["killed_by"] == pl.String


@pytest.mark.parametrize("fact", ["hbm_bytes", "hbm_bytes_per_s"])
def test_more_hardware_loses_no_survivor(fact):
    slo = SLO(tpot_s=0.02, ttft_s=0.3)
    points = []
    for scale in (1.0, 1.5, 2.0, 4.0):
        base = worlds.gpu()
        on = replace(base, **{fact: getattr(base, fact) * scale})
        for layout in (Layout(tp=1), Layout(tp=2), Layout(tp=4, pp=2)):
            for concurrency in (1, 64, 1024):
                deployment = worlds.deployment(worlds.llama_8b(), on=on, layout=layout)
                load = asked(slo=slo, concurrency=concurrency, n_requests=10 * concurrency)
                points.append((scale, layout, concurrency, deployment, load))
    rows = judged_points([(d, load) for *_, d, load in points], FactsCache())
    alive = {key[:3]: row["killed_by"] is None for key, row in zip(points, rows, strict=True)}
    for (scale, layout, concurrency), survives in alive.items():
        if survives:
            assert all(alive[more, layout, concurrency] for more in (1.5, 2.0, 4.0) if more > scale)


def test_apart_is_bounded_by_both_pools():
    on, joined, by = worlds.gpu(), worlds.fabric(), worlds.engine()

    def apart(n_prefill, n_decode):
        counts = {"prefill": n_prefill, "decode": n_decode}
        pools = tuple(
            Pool(gpu=on, fabric=joined, layout=Layout(), engine=by, role=role, n_replicas=count)
            for role, count in counts.items()
        )
        deployment = worlds.deployment(worlds.llama_8b())
        return replace(deployment, pools=pools, interconnect=joined.scale_out)

    load = {"isl_low_tokens": 4000, "osl_low_tokens": 100, "osl_high_tokens": 100}
    rates = {
        counts: verdict(apart(*counts), concurrency=512, n_requests=5120, **load)
        for counts in ((1, 1), (2, 1), (1, 2))
    }
    total = {counts: row["output_tok_per_s_per_gpu"] * sum(counts) for counts, row in rates.items()}
    assert total[2, 1] > total[1, 1] * 1.5
    assert total[1, 2] == pytest.approx(total[1, 1])


def test_longest_request_fills_the_pool():
    from dse.cost.memory import rank_memory

    for model in (worlds.tiny(), worlds.sliding_hybrid(), worlds.linear_hybrid()):
        for pool_bytes in (1e5, 1e6, 1e7, 1e8):
            deployment = worlds.deployment(model, kv_pool_bytes=pool_bytes)
            memory = rank_memory(deployment, deployment.pools[0])
            longest = longest_request_tokens(memory)
            if longest:
                assert memory.request_bytes(longest) <= pool_bytes
            assert memory.request_bytes(longest + 1) > pool_bytes


def test_cache_changes_no_fact():
    cache = FactsCache()
    for layout in (Layout(), Layout(tp=2), Layout(tp=2)):
        for scale in (1.0, 2.0):
            on = worlds.gpu(hbm_bytes_per_s=scale * 1e12)
            deployment = worlds.deployment(worlds.mixture(), layout=layout, on=on)
            assert facts_of(deployment, cache) == facts_of(deployment)
