"""The layout judgment of Floor First on sixteen H20 (arXiv:2607.05876), in both accounts."""

import pytest

from dse.cost.account import decode_floor
from dse.hardware.dtype import DType
from dse.walls.describe import describe

CLUSTER = {
    "fabric": "h20-floor-first",
    "hbm_fraction": "0.9",
    "overhead": "5 GB",
    "engine": "sglang",
    "set_": ("gpu.hbm=96 GB",),
    "engine_args": "block_tokens=64",
}
TP16, EP16 = "tp=16", "dp=16,ep=16"


@pytest.fixture
def on_h20(deploy):
    def make(model, layout):
        return deploy(model, "h20-96gb", layout=layout, **CLUSTER)

    return make


@pytest.mark.parametrize(
    ("layout", "weights", "requests"), [(TP16, 41.94e9, 68), (EP16, 57.99e9, 650)]
)
def test_capacity_in_the_papers_account(on_h20, layout, weights, requests):
    memory = describe(on_h20("deepseek-v3-paper", layout))["memory"]
    assert memory["weight_bytes_per_gpu"] == pytest.approx(weights, rel=1e-3)
    assert memory["kv_bytes_per_request"] == pytest.approx(575.67e6, rel=1e-5)
    assert memory["b_max_whole_pool"] == requests


@pytest.mark.parametrize(
    ("layout", "weights", "requests"), [(TP16, 43.1e9, 66), (EP16, 60.0e9, 592)]
)
def test_capacity_in_the_exact_account(on_h20, layout, weights, requests):
    memory = describe(on_h20("deepseek-v3", layout))["memory"]
    assert memory["weight_bytes_per_gpu"] == pytest.approx(weights, rel=2e-3)
    assert memory["b_max"] == requests


def test_vocabulary_over_the_dp_group(deploy):
    over = CLUSTER | {"engine_args": "block_tokens=64,vocab_over_dp=on"}
    memory = describe(deploy("deepseek-v3", "h20-96gb", layout=EP16, **over))["memory"]
    assert memory["weight_bytes_per_gpu"] == pytest.approx(56.5e9, rel=2e-3)
    assert memory["b_max"] == 688


def test_single_stream_favours_tensor_parallel(on_h20):
    def sums(layout):
        deployment = on_h20("deepseek-v3-paper", layout)
        floor = decode_floor(deployment, deployment.pools[0], 1, 8_192)
        # The paper counts no gathering of logits.
        logits = sum(t.seconds for t in floor.terms if t.name == "all_gather")
        moved = floor.t_hbm_s + floor.t_net_s - logits
        return float(moved) * 1e3, float(moved + floor.t_flop_s) * 1e3

    (tp, tp_flop), (ep, ep_flop) = sums(TP16), sums(EP16)
    assert tp == pytest.approx(4.78, rel=0.002)
    assert ep == pytest.approx(11.47, rel=0.005)
    assert ep / tp == pytest.approx(2.40, rel=0.005)
    assert (tp_flop, ep_flop) == pytest.approx((4.86, 12.53), rel=0.005)


def test_flop_wall_binds_before_capacity(on_h20):
    from dse.serving.slo import SLO

    found = describe(on_h20("deepseek-v3-paper", EP16), slo=SLO(tpot_s=0.040))
    order = [(each["wall"], each["concurrency"]) for each in found["wall_order"]]
    # 528 requests keep 40 ms, the next one does not.
    assert order[:2] == [("flop", 529), ("kv_capacity", 640)]


def test_layouts_cross_as_load_grows(on_h20):
    # Alone TP16 is quicker; beyond its 68 requests only the other one holds the load.
    layouts = {layout: on_h20("deepseek-v3-paper", layout) for layout in (TP16, EP16)}
    alone = {layout: decode_floor(d, d.pools[0], 1, 8_192).t_sum_s for layout, d in layouts.items()}
    ceilings = {
        layout: describe(d)["goodput_ceiling_tok_per_s_per_gpu"] for layout, d in layouts.items()
    }
    assert alone[TP16] < alone[EP16]
    assert ceilings[TP16] < ceilings[EP16]


def test_ridge_points(catalog):
    ridges = [catalog.gpu(name).ridge_flop_per_byte(DType.FP8) for name in ("h20-96gb", "h100-sxm")]
    assert ridges == pytest.approx([74, 590], rel=0.002)


def test_sparse_attention_leaves_the_capacity_wall(on_h20):
    dense, sparse = (on_h20(name, TP16) for name in ("deepseek-v3", "deepseek-v3.2"))

    def read(deployment):
        floor = decode_floor(deployment, deployment.pools[0], 1, 8_192)
        return next(t.amount for t in floor.terms if t.name == "kv_read")

    assert read(dense) / read(sparse) == pytest.approx(2.74, rel=0.005)
    rooms = [describe(d)["memory"]["b_max"] for d in (dense, sparse)]
    assert rooms[1] < rooms[0]
