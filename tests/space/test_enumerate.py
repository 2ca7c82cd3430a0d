"""Structures, numeric axes, points and sizes of small spaces, counted by hand."""

import pickle

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dse.space import numeric, points, size, stride, structures

LAYOUTS = """
layout: {tp: [1, 2, 4], pp: [1, 2]}
n_gpus: [4, 8]
"""
BRANCHES = """
model: tiny-moe
n_gpus: 4
any_of:
  together:
    layout: {tp: [1, 2], dp: [1, 2], ep: auto}
  apart:
    batch: 4
    prefill: {layout: {tp: [1, 2]}}
    decode: {layout: {dp: 2, ep: auto}}
"""


def test_a_product_is_enumerated_in_the_order_of_its_axes(spaced, catalog):
    found = list(structures(spaced(LAYOUTS), catalog))
    rows = [(s.columns["tp"], s.columns["pp"], s.columns["n_gpus"]) for s in found]
    assert rows == [(tp, pp, n) for tp in (1, 2, 4) for pp in (1, 2) for n in (4, 8)]
    assert [s.index for s in found] == list(range(12))


def test_replicas_fill_the_cluster_or_the_layout_is_illegal(spaced, catalog):
    found = {
        (s.columns["tp"], s.columns["pp"], s.columns["n_gpus"]): s
        for s in structures(spaced(LAYOUTS), catalog)
    }
    assert found[2, 2, 8].columns["n_replicas"] == 2
    assert found[2, 2, 8].deployment.n_gpus == 8
    lost = found[4, 2, 4]
    assert lost.deployment is None
    assert [str(each) for each in lost.illegal] == [
        "4 GPUs % 8 GPUs of a replica = 4; legal: gpus=8"
    ]


def test_automatic_ep_is_every_legal_one(spaced, catalog):
    found = [s for s in structures(spaced(BRANCHES), catalog) if s.branch == "together"]
    rows = [(s.columns["tp"], s.columns["dp"], s.columns["ep"]) for s in found]
    # vLLM's lattice: experts are cut by tensor over all ranks, or dealt whole to all ranks.
    assert rows == [(1, 1, 1), (1, 2, 1), (1, 2, 2), (2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 4)]
    assert not any(s.illegal for s in found)


def test_automatic_ep_of_a_dense_model_is_one(spaced, catalog):
    found = list(structures(spaced("layout: {tp: [1, 8], ep: auto}"), catalog))
    assert [s.columns["ep"] for s in found] == [1, 1]


def test_a_combination_that_no_ep_helps_keeps_its_reasons(spaced, catalog):
    (found,) = structures(spaced("model: tiny-moe\nlayout: {tp: 3, ep: auto}\nn_gpus: 3"), catalog)
    assert any("heads 16 % TP 3" in each.reason for each in found.illegal)


def test_automatic_splits_fill_the_cluster(spaced, catalog):
    found = [s for s in structures(spaced(BRANCHES), catalog) if s.branch == "apart"]
    rows = [
        (
            s.columns["prefill_tp"],
            s.columns["decode_ep"],
            s.columns["prefill_n_replicas"],
            s.columns["decode_n_replicas"],
        )
        for s in found
    ]
    assert rows == [(1, 1, 2, 1), (1, 2, 2, 1), (2, 1, 1, 1), (2, 2, 1, 1)]
    assert "tp" not in found[0].columns
    assert found[0].columns["n_replicas"] == found[0].columns["decode_n_replicas"]
    prefill, decode = found[0].deployment.pools
    assert (prefill.role, decode.role, decode.layout.dp) == ("prefill", "decode", 2)
    assert found[0].busy_replicas == 1


def test_a_split_that_fills_nothing_is_a_reason(spaced, catalog):
    text = BRANCHES.replace("n_gpus: 4", "n_gpus: 3").replace("tp: [1, 2]}}", "tp: 2}}")
    found = [s for s in structures(spaced(text), catalog) if s.branch == "apart"]
    assert {str(each) for s in found for each in s.illegal} == {
        "no split of 3 GPUs into prefill replicas of 2 and decode replicas of 2 fills them"
    }


def test_a_stated_split_must_fill_the_cluster(spaced, catalog):
    text = BRANCHES + "    split: [{prefill: 2, decode: 1}, {prefill: 1, decode: 1}]\n"
    found = [s for s in structures(spaced(text), catalog) if s.branch == "apart"]
    assert len(found) == 4
    assert not any(s.illegal for s in found)


def test_numeric_axes_are_columns(spaced):
    space = spaced("context: [{isl: 1k, osl: [10, 20]}, {isl: 8Ki, osl: 1}]\nbatch: [1, 2]")
    frame = numeric(space, "all")
    assert frame.columns == ["context", "isl_tokens", "osl_tokens", "batch"]
    assert frame.rows()[:3] == [
        ("1000/10", 1000, 10, 1),
        ("1000/10", 1000, 10, 2),
        ("1000/20", 1000, 20, 1),
    ]
    assert frame.height == 6


def test_points_carry_an_id_that_does_not_depend_on_the_rest(spaced, catalog):
    space = spaced(BRANCHES)
    every = list(structures(space, catalog))
    frame = points(space, every).sort("point").collect()
    assert frame["point"].is_unique().all()
    assert frame.height == size(space, catalog).n_points == 7 * 2 + 4
    alone = points(space, every[-1:]).collect()
    assert alone["point"].to_list() == [every[-1].index * stride(space)]
    assert alone["concurrency"].to_list() == [4 * 1]


def test_points_do_not_depend_on_the_order_of_structures(spaced, catalog):
    space = spaced(BRANCHES)
    every = list(structures(space, catalog))
    forward = points(space, every).sort("point").collect()
    backward = points(space, every[::-1]).sort("point").select(forward.columns).collect()
    assert forward.equals(backward)


@pytest.mark.parametrize(
    "where",
    [
        "tp * pp <= 4",
        "isl <= 2k",
        "batch * n_replicas < 20",
        "hbm >= 100 GB",
        "fabric.scale_up.gpus > 4 and concurrency > 3",
        "gpu.hbm * n_gpus > 1 TB and batch > 1",
    ],
)
def test_a_condition_removes_what_a_filter_would(spaced, catalog, where):
    text = LAYOUTS + "gpu: [h100-sxm, h200-sxm]\ncontext: {isl: [1k, 4k], osl: 10}\n"
    free, bound = spaced(text), spaced(f'{text}where: ["{where}"]\n')
    every = list(structures(free, catalog))
    hbm = pl.Series("gpu.hbm", [s.fact("gpu.hbm") for s in every])
    ups = pl.Series("fabric.scale_up.gpus", [s.fact("fabric.scale_up.gpus") for s in every])
    index = pl.Series("structure", [s.index for s in every], dtype=pl.UInt64)
    facts = pl.DataFrame([index, hbm, ups])
    all_points = points(free, every).collect().join(facts, on="structure")
    condition = bound.branches[0].where[0].expr()
    expected = all_points.filter(condition)
    found = points(bound, structures(bound, catalog)).collect()
    key = ["structure", "context", "batch"]
    assert found.select(key).sort(key).equals(expected.select(key).sort(key))
    assert size(bound, catalog).n_points == expected.height


degrees = st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3, unique=True)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    tp=degrees,
    dp=degrees,
    n_gpus=degrees,
    batch=degrees,
    automatic=st.booleans(),
    apart=st.booleans(),
    limit=st.none() | st.integers(1, 64),
)
def test_the_size_is_what_is_yielded(
    spaced, catalog, tp, dp, n_gpus, batch, automatic, apart, limit
):
    layout = f"layout: {{tp: {tp}, dp: {dp}, ep: {'auto' if automatic else 1}}}"
    pools = f"prefill: {{{layout}}}\ndecode: {{{layout}}}" if apart else layout
    name = "decode_n_replicas" if apart else "n_replicas"
    where = f"\nwhere: [n_gpus * {name} * batch <= {limit}]" if limit else ""
    space = spaced(f"model: tiny-moe\n{pools}\nn_gpus: {n_gpus}\nbatch: {batch}{where}")
    counted = size(space, catalog)
    found = list(structures(space, catalog))
    assert counted.n_structural == len(found)
    assert counted.n_points == points(space, found).collect().height
    assert len({s.index for s in found}) == len(found)
    for structure in found:
        deployment = structure.deployment
        assert deployment is None or deployment.n_gpus == structure.columns["n_gpus"]


def test_structures_cross_process_boundaries(spaced, catalog):
    (first, *_) = structures(spaced(BRANCHES), catalog)
    copy = pickle.loads(pickle.dumps(first))
    assert copy == first
    assert copy.deployment == first.deployment


def test_points_of_nothing_are_no_rows(spaced, catalog):
    assert points(spaced(BRANCHES), []).collect().is_empty()


def test_a_space_of_a_billion_points_is_counted_in_blocks(spaced, catalog):
    text = """
model: tiny-moe
gpu: {base: h200-sxm, vary: {hbm: {from: 80 GB, to: 1.07 TB, step: 10 GB}}}
n_gpus: {powers_of: 2, to: 256}
batch: {from: 1, to: 10k, step: 1}
layout: {tp: {powers_of: 2, to: 8}, dp: {powers_of: 2, to: 8}, pp: [1, 2, 4], ep: auto}
"""
    counted = size(spaced(text), catalog)
    per_gpu = counted.n_structural // 100
    assert counted.n_structural == 100 * per_gpu
    assert counted.n_points == counted.n_structural * 10_000 > 1e8


def test_a_part_of_a_profile_is_varied_by_its_kind(spaced, catalog):
    text = """
model: tiny-dense
gpu: h200-sxm
engine: {base: vllm, vary: {scheduler: [chunked_prefill, static]}}
n_gpus: 1
layout: {tp: 1}
"""
    found = list(structures(spaced(text), catalog))
    kinds = [each.deployment.pools[0].engine.scheduler.kind for each in found]
    assert kinds == ["chunked_prefill", "static"]
    assert [each.columns["engine.scheduler"] for each in found] == kinds
