"""The account of a step: sums by hand, the H20 case of Floor First, and what must be monotone."""

from dataclasses import replace

import numpy as np
import pytest

from dse.cost.account import decode_floor, prefill_floor, prompt_floor_s
from dse.hardware import Fabric, Link
from dse.hardware.dtype import DType
from dse.model.precision import Precision
from dse.serving.deployment import SpeculativeDecoding
from dse.serving.layout import Layout
from tests import worlds

# Floor First (arXiv:2607.05876), section 4: measured on a cluster of H20.
LINK = Link(
    n_gpus=8,
    bytes_per_s=4.5e11,
    latency_s=33e-6,
    latency_floor_s=33e-6,
    all_reduce_bytes_per_s=43e9,
    exchange_latency_s=60e-6,
)
H20_FABRIC = Fabric(
    name="floor-first",
    kind="switch",
    scale_up=LINK,
    scale_out=replace(LINK, n_gpus=4096, bytes_per_s=5e10),
    source="arXiv:2607.05876",
)
H20 = worlds.gpu(
    name="h20",
    hbm_bytes=96e9,
    hbm_bytes_per_s=4.0e12,
    peak_flop_per_s={"bf16": 148e12, "fp8": 296e12},
    sfu_op_per_s=2.47e12,
)


def h20(layout, *, sparse=False, kv=DType.BF16):
    return worlds.deployment(
        worlds.deepseek_v3(sparse=sparse),
        precision=replace(worlds.FP8_BLOCK, kv=kv),
        layout=layout,
        on=H20,
        joined=H20_FABRIC,
        by=worlds.engine(block_tokens=64, hbm_fraction=0.9, memory={"overhead_bytes": 5e9}),
    )


def decode(deployment, n, context):
    return decode_floor(deployment, deployment.pools[0], n, context)


def seconds(floor, resource, name):
    return next(t.seconds for t in floor.terms if (t.resource, t.name) == (resource, name))


TP16, EP16 = Layout(tp=16), Layout(dp=16, ep=16)


def test_terms_of_the_h20_case_at_one_request():
    tp, ep = decode(h20(TP16), 1, 8192), decode(h20(EP16), 1, 8192)
    for floor in (tp, ep):
        assert seconds(floor, "hbm", "experts") == pytest.approx(0.319e-3, rel=0.002)
        assert seconds(floor, "hbm", "kv_read") == pytest.approx(0.144e-3, rel=0.002)
    assert seconds(tp, "network_messages", "all_reduce") == pytest.approx(4.026e-3)
    assert seconds(tp, "network_bytes", "all_reduce") == pytest.approx(0.041e-3, rel=0.01)
    exchanges = [seconds(ep, "network_messages", f"ep_{kind}") for kind in ("dispatch", "combine")]
    assert sum(exchanges) == pytest.approx(6.960e-3)


def test_flop_wall_of_the_h20_case_at_640_requests():
    floor = decode(h20(EP16), 640, 8192)
    assert floor.t_flop_s == pytest.approx(47.5e-3, rel=0.01)
    assert seconds(floor, "flop", "attention") == pytest.approx(37.6e-3, rel=0.002)
    assert floor.t_hbm_s == pytest.approx(20.0e-3, rel=0.02)
    assert floor.binding == "flop"


def test_sparse_attention_cuts_reads_not_what_is_stored():
    def read(sparse, context):
        floor = decode(h20(TP16, sparse=sparse), 1, context)
        return next(t.amount for t in floor.terms if t.name == "kv_read")

    assert read(False, 8192) == pytest.approx(575.7e6, rel=1e-3)
    assert read(True, 8192) == pytest.approx(209.9e6, rel=1e-3)
    assert read(False, 131_072) / read(True, 131_072) == pytest.approx(7.7, rel=0.01)
    assert read(True, 2_000) > read(False, 2_000)


def test_ridge_points():
    assert H20.ridge_flop_per_byte(DType.FP8) == pytest.approx(74)


def test_decode_step_by_hand():
    # tiny on one GPU of 1 TB/s: every linear weight once, and KV of 4 heads x 16 in two layers.
    floor = decode(worlds.deployment(worlds.tiny()), 2, 100)
    attention = 128 * 16 * 16 + 8 * 16 * 128
    weights = 2 * (2 * (attention + 3 * 128 * 256))
    amounts = {(t.resource, t.name): t.amount for t in floor.terms}
    assert amounts["hbm", "weights"] == weights
    assert amounts["hbm", "head"] == 2 * 1024 * 128
    assert amounts["hbm", "kv_read"] == 2 * 2 * 100 * (4 * 32 * 2)
    assert amounts["hbm", "kv_write"] == 2 * 2 * (4 * 32 * 2)
    assert amounts["flop", "attention"] == 2 * 2 * 100 * 4 * 8 * 16
    assert amounts["flop", "weights"] == 2 * weights / 2 * 2
    assert amounts["sfu", "softmax"] == 2 * 2 * 100 * 8
    assert floor.t_hbm_s == pytest.approx(
        sum(v for (r, _), v in amounts.items() if r == "hbm") / 1e12
    )
    assert floor.t_net_s == 0


def test_expert_union_at_one_and_at_many():
    # Two layers, 16 experts of 3 x 128 x 64, 2 per token: 2 experts at n=1, all at n=1000.
    one, many = (decode(worlds.deployment(worlds.mixture()), n, 64) for n in (1, 1000))
    expert = 2 * 3 * 128 * 64
    amount = {
        floor: next(t.amount for t in floor.terms if t.name == "experts") for floor in (one, many)
    }
    assert amount[one] == pytest.approx(2 * 2 * expert)
    assert amount[many] == pytest.approx(2 * 16 * expert)


def test_interval_encloses_every_resource():
    floor = decode(h20(EP16), 64, 4096)
    times = (floor.t_hbm_s, floor.t_flop_s, floor.t_net_s)
    assert floor.t_opt_s == max(times)
    assert floor.t_sum_s == pytest.approx(sum(times))


@pytest.mark.parametrize(
    "model",
    [
        worlds.tiny(),
        worlds.mixture(),
        worlds.sliding_hybrid(),
        worlds.linear_hybrid(),
        worlds.deepseek_v3(sparse=True),
    ],
    ids=lambda model: model.name,
)
def test_arrays_give_what_numbers_give(model):
    deployment = worlds.deployment(model, layout=Layout(tp=2, pp=2))
    n, context = np.array([1.0, 7.0, 64.0])[:, None], np.array([128.0, 5000.0])[None, :]
    grid = decode(deployment, n, context)
    for i, requests in enumerate((1, 7, 64)):
        for j, tokens in enumerate((128, 5000)):
            alone = decode(deployment, requests, tokens)
            assert grid.t_opt_s[i, j] == pytest.approx(alone.t_opt_s)
            assert grid.t_sum_s[i, j] == pytest.approx(alone.t_sum_s)
    assert np.all(np.diff(grid.t_opt_s, axis=0) >= 0)
    assert np.all(np.diff(grid.t_opt_s, axis=1) >= 0)


def test_pipeline_adds_stages_and_sends():
    one = decode(worlds.deployment(worlds.tiny()), 1, 100)
    two = decode(worlds.deployment(worlds.tiny(), layout=Layout(pp=2)), 1, 100)
    assert two.t_hbm_s == pytest.approx(one.t_hbm_s)
    assert len(two.stages) == 2
    assert one.occupancy_s == one.t_opt_s
    assert two.occupancy_s == max(stage.t_opt_s for stage in two.stages)
    assert max(stage.t_hbm_s for stage in two.stages) < one.t_hbm_s
    assert seconds(two, "network_messages", "p2p") == 1e-6


def test_speculation_computes_all_drafted_tokens():
    plain = worlds.deployment(worlds.tiny())
    drafting = replace(
        plain, speculative=SpeculativeDecoding(method="draft", n_draft=3, acceptance=0.5)
    )
    assert decode(drafting, 1, 100).seconds("flop") == 4 * decode(plain, 1, 100).seconds("flop")


def test_prefill_by_hand():
    floor = prefill_floor(d := worlds.deployment(worlds.tiny()), d.pools[0], 100, 0)
    amounts = {(t.resource, t.name): t.amount for t in floor.terms}
    assert amounts["flop", "attention"] == 2 * 8 * (100**2 / 2) * 2 * 32
    # The head sees the last token only.
    assert amounts["flop", "head"] == 2 * 128 * 1024


def test_prompt_is_the_sum_of_its_chunks():
    deployment = worlds.deployment(
        worlds.tiny(), by=worlds.engine(max_num_batched_tokens=60), precision=Precision()
    )
    pool = deployment.pools[0]
    chunks = [
        prefill_floor(deployment, pool, n, cached).t_opt_s for n, cached in ((60, 0), (40, 60))
    ]
    assert prompt_floor_s(deployment, pool, 100) == pytest.approx(sum(chunks))
    assert prompt_floor_s(deployment, pool, 100, 60) == pytest.approx(chunks[1])
