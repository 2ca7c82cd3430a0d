"""Layouts that engines refuse, with the divisor named (public cases A4), and DP attention (A5)."""

from dataclasses import replace

import pytest

from dse.cost.account import decode_floor
from dse.serving.layout import Layout
from dse.serving.legality import check
from dse.walls.describe import describe


def test_phi_4(broken):
    # Case 46, vllm #5951 and #16021: 40 heads, 10 KV heads.
    legal = [tp for tp in range(1, 11) if not broken("phi-4", layout=f"tp={tp}", engine="vllm")]
    assert legal == [1, 2, 5, 10]
    assert any("KV heads 10 % TP 4" in reason for reason in broken("phi-4", layout="tp=4"))


@pytest.mark.parametrize(
    ("model", "tp"), [("qwen2.5-7b", 7), ("qwen2.5-7b", 14), ("qwen2.5-0.5b", 7)]
)
def test_divisors_of_heads_that_kv_heads_forbid(broken, model, tp):
    # Case 46: lists that look at query heads alone.
    assert any("KV heads" in reason for reason in broken(model, layout=f"tp={tp}"))


def test_28_heads_on_8_ranks(broken):
    # Case 45, vllm #596.
    assert "heads 28 % TP 8 = 4" in broken("qwen2.5-7b", layout="tp=8")


def test_r1_fp8_on_32_ranks(broken):
    # Case 48, sglang #3345: 18432 / 32 = 576 is no multiple of 128; legal in BF16.
    for engine in ("vllm", "sglang"):
        found = broken("deepseek-r1", "h200-sxm", layout="tp=32,ep=32", engine=engine)
        assert any("18432 / TP 32 = 576" in reason for reason in found)
    assert not broken("deepseek-r1", "h200-sxm", layout="tp=32,ep=32", weights="bf16")


def test_qwen3_30b_fp8(broken):
    # Case 49, vllm #25292: 768 / 4 = 192.
    found = broken("qwen3-30b-a3b-fp8", layout="tp=4", engine="vllm")
    assert any("768 / MoE-TP 4 = 192" in reason for reason in found)
    for layout in ("tp=1", "tp=2", "tp=4,ep=4"):
        assert not broken("qwen3-30b-a3b-fp8", layout=layout, engine="vllm")


def test_qwen3_coder_480b_fp8(broken, deploy):
    # Case 51, recipes: 2560 / 8 = 320 illegal, DP8+EP legal, no room for 262,144 on one H20 node.
    found = broken("qwen3-coder-480b", layout="tp=8", weights="fp8_block", engine="vllm")
    assert any("2560 / MoE-TP 8 = 320" in reason for reason in found)
    layout = "dp=8,ep=8"
    assert not broken("qwen3-coder-480b", layout=layout, weights="fp8_block", engine="vllm")
    node = deploy("qwen3-coder-480b", "h20-96gb", layout=layout, weights="fp8_block", engine="vllm")
    assert not describe(node, context_tokens=262_144)["legal"]


def test_legality_belongs_to_engine_and_version(deploy):
    # Case 54, ATOM #1944 and vllm #52997: the 64-wide shard runs where the engine pads.
    deployment = deploy("qwen3.5-35b-a3b", layout="tp=8", weights="fp8_block", engine="vllm")
    pool = deployment.pools[0]
    padding = replace(pool.engine, rules=replace(pool.engine.rules, pads_blocks=True))
    shape = (deployment.model, deployment.precision, pool.layout)
    assert check(*shape, pool.engine, pool.gpu)
    assert not check(*shape, padding, pool.gpu)


def test_legality_may_depend_on_the_gpu(deploy):
    # Case 55, vllm #41360: BF16 TP8 starts on H100, its 96-wide shard fails a kernel of B200.
    rules = {}
    for gpu in ("h100-sxm", "b200-sxm"):
        deployment = deploy("qwen3-30b-a3b", gpu, layout="tp=8", engine="vllm")
        pool = deployment.pools[0]
        bounded = replace(pool.engine.rules, gpu_block_rules={"blackwell": 64})
        engine = replace(pool.engine, rules=bounded)
        rules[gpu] = check(deployment.model, deployment.precision, pool.layout, engine, pool.gpu)
    assert not rules["h100-sxm"]
    assert any("768 / MoE-TP 8 = 96" in illegal.reason for illegal in rules["b200-sxm"])


@pytest.mark.parametrize(
    ("ep", "redundant", "legal"),
    [(3, 0, False), (3, 2, True), (32, 32, True), (144, 32, True), (144, 0, False)],
)
def test_experts_divide_among_ranks(broken, ep, redundant, legal):
    # Case 57, vllm #52435 and DeepSeek open-infra day 6.
    layout = f"dp={ep},ep={ep}"
    found = broken("deepseek-v3", "h200-sxm", layout=layout, engine="sglang", redundant=redundant)
    assert (not found) is legal


def test_vllm_lattice_is_narrower_than_trtllm(broken):
    # Case 58, aiconfigurator #387, #647, #705: vLLM has expert TP = TP x DP or pure EP.
    layout = "tp=8,ep=4"
    assert any(
        "neither 1 nor 8" in r for r in broken("qwen3-30b-a3b", layout=layout, engine="vllm")
    )
    assert not broken("qwen3-30b-a3b", layout=layout, engine="trtllm")


def test_declared_degrees_are_never_rewritten(deploy):
    # Case 58: an impossible MoE-TP stays as declared and is refused.
    deployment = deploy("qwen3-30b-a3b", layout="tp=4,ep=2,moe_tp=4", engine="ideal")
    assert deployment.pools[0].layout == Layout(tp=4, ep=2, moe_tp=4)
    assert not describe(deployment)["legal"]


def test_v4_pro_leaves_no_layout_on_four_gb200(deploy):
    # Case 59, InferenceX #1157: no room at TP4.
    four = deploy("deepseek-v4-pro", "gb200", layout="tp=4", engine="sglang")
    assert not describe(four, context_tokens=8_192)["legal"]


def test_v4_pro_at_800_000_tokens(deploy):
    # Case 64, recipes #381: 8 x H200 of 143,771 MiB, DP8, does not start at 800,000.
    deployment = deploy("deepseek-v4-pro", "h200-sxm", layout="dp=8,ep=8", engine="vllm")
    found = describe(deployment, context_tokens=800_000)
    assert not found["legal"] or found["memory"]["verdict"] == "marginal"


def test_cross_node_tensor_parallel_ranks_below_one_node(deploy):
    # Case 66, sglang #3656: TP16 over two nodes is slower at low concurrency than TP8 in one.
    def single_stream(gpu, layout):
        # What a small message typically takes; the floors of both levels are nearly equal.
        typical = ("fabric.scale_up.latency=12 us", "fabric.scale_out.latency=33 us")
        deployment = deploy("deepseek-r1", gpu, layout=layout, engine="sglang", set_=typical)
        return decode_floor(deployment, deployment.pools[0], 1, 4_096).t_sum_s

    assert single_stream("h100-sxm", "tp=16") > single_stream("h200-sxm", "tp=8")
