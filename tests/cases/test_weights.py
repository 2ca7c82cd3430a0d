"""Weights that are not parameters × bytes, and what they leave for KV (public cases A2)."""

from dataclasses import replace

import pytest

from dse.cost.memory import rank_memory
from tests.cases.conftest import GIB

H100 = {"hbm_fraction": "0.9", "engine": "vllm"}


@pytest.mark.parametrize(
    ("model", "layout", "gib"),
    [
        ("gpt-oss-20b", "tp=1", 13.47),
        ("gpt-oss-120b", "tp=1", 64.38),
        ("llama-3.3-70b-fp8", "tp=1", 67.72),
        ("llama-3.3-70b-fp8", "tp=2", 33.88),
        ("llama-3.1-8b", "tp=1", 14.99),
        ("qwen3-32b", "tp=1", 61.03),
        ("qwen3-32b", "tp=2", 30.59),
        ("mistral-small-24b", "tp=1", 44.76),
    ],
)
def test_weights_that_vllm_loads(memory, model, layout, gib):
    # Case 23, llm-d-planner docs/empirical-vllm-memory-results.md.
    assert memory(model, layout=layout, **H100).weight_bytes / GIB == pytest.approx(gib, rel=0.02)


@pytest.mark.parametrize(
    ("model", "layout", "context", "fits"),
    [
        ("deepseek-r1", "tp=1", 1, False),
        ("llama-3.3-70b-fp8", "tp=1", 16, False),
        ("llama-3.3-70b-fp8", "tp=2", 32_000, True),
        ("qwen3-32b", "tp=1", 32_000, False),
        ("qwen3-32b", "tp=1", 8_000, True),
        ("qwen3-32b", "tp=2", 32_000, True),
        ("llama-3.1-8b", "tp=1", 32_000, True),
        ("gpt-oss-120b", "tp=1", 8_000, True),
    ],
)
def test_verdicts_on_h100(memory, model, layout, context, fits):
    # Case 23, same document.
    assert (memory(model, layout=layout, **H100).b_max(context) > 0) is fits


@pytest.mark.parametrize(
    ("model", "layout", "gib"),
    [
        ("llama-3.3-70b-fp8", "tp=2", 32.0),
        ("llama-3.1-8b", "tp=1", 51.38),
        ("qwen3-32b", "tp=1", 4.45),
        ("qwen3-32b", "tp=2", 34.49),
    ],
)
def test_pool_that_vllm_is_left_with(memory, model, layout, gib):
    # Case 23: what the catalog's overheads leave, within 1 GiB of 79.
    pool = memory(model, layout=layout, **H100).kv_pool_bytes
    assert pool / GIB == pytest.approx(gib, abs=1.0)


def test_mxfp4_is_padded_when_loaded(memory):
    # Case 25, kvcached #187: 65.97 GiB loaded of 60.8 GiB of files.
    loaded = memory("gpt-oss-120b", engine="vllm").weight_bytes
    assert loaded >= 1.06 * 60.8 * GIB * 0.99
    assert loaded / GIB == pytest.approx(65.97, rel=0.03)


def test_marginal_is_a_verdict_with_a_margin(deploy):
    # Case 26, vllm #27508: 1.71 GiB left on one H100; some start, others do not.
    from dse.walls.describe import describe

    args = {"hbm_fraction": "0.95", "engine": "vllm", "engine_args": "max_num_batched_tokens=1024"}
    found = describe(deploy("gpt-oss-120b", **args), context_tokens=131_072)["memory"]
    assert found["verdict"] in {"marginal", "fits"}
    assert found["margin_gib"] == found["margin_bytes"] / GIB
    tight = describe(deploy("qwen3-32b", layout="tp=1", engine="vllm"), context_tokens=16_000)[
        "memory"
    ]
    assert tight["verdict"] == "marginal"


def test_rtx_5090_by_its_driver(memory):
    # Case 27, vllm recipes: 31.4 GiB usable, not 32; an FP8 27B takes 14.28 GiB of each of two.
    found = memory("qwen3.6-27b", "rtx-5090", layout="tp=2", weights="fp8", engine="vllm")
    assert found.hbm_bytes / GIB == pytest.approx(31.4)
    assert found.weight_bytes / GIB == pytest.approx(14.28, rel=0.03)


def test_checkpoint_bytes_win(deploy):
    # Case 28, vllm recipes: a mixed 27B NVFP4 checkpoint weighs 21.9 GB, not parameters / 2 x 1.2.
    counted = deploy("qwen3.6-27b-nvfp4", "rtx-5090", engine="ideal")
    model = replace(counted.model, checkpoint_bytes=21.9e9)
    stated = replace(counted, model=model)
    # The files hold the draft module too, which is loaded with speculation only.
    assert rank_memory(stated, stated.pools[0]).weight_bytes == pytest.approx(21.9e9, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "layout", "fits"),
    [
        ("h100-sxm", "tp=8", False),
        ("h20-96gb", "tp=8", True),
        ("h200-sxm", "tp=8", True),
        ("h100-sxm", "tp=16", True),
    ],
)
def test_deepseek_r1_on_nodes(memory, gpu, layout, fits):
    # Case 30, DeepSeek-R1 #276, #354, #460.
    found = memory("deepseek-r1", gpu, layout=layout, engine="sglang")
    assert (found.b_max(4_096) > 0) is fits


def test_deepseek_r1_needs_24_to_32_a100(deploy):
    # Case 30: no FP8 there, 1,342 GB in BF16, 19 GPUs by bytes, 24 to 32 in whole nodes.
    from dse.walls.fewest import fewest_gpus

    deployment = deploy("deepseek-r1", "a100-sxm", weights="bf16", engine="vllm")
    assert 24 <= fewest_gpus(deployment, context_tokens=4_096, concurrency=1)["n_gpus"] <= 32


def test_per_gpu_and_per_engine_stand_side_by_side(deploy):
    # Case 32, vllm #13061: R1-Distill-Qwen-14B on two 4090, 81,536 tokens at TP2.
    from dse.walls.describe import describe

    deployment = deploy("qwen2.5-14b", "rtx-4090", layout="tp=2", kv_pool="7.46 GiB")
    found = describe(deployment, context_tokens=4_096)["memory"]
    assert found["kv_bytes_per_token"] == 98_304
    assert found["kv_pool_tokens"] == pytest.approx(81_536, abs=64)
    assert found["kv_pool_bytes_per_replica"] == 2 * found["kv_pool_bytes_per_gpu"]


def test_expert_parallel_shards_experts(deploy, memory):
    # Case 33, aiconfigurator #1390: EP8 holds 48 of 384 experts.
    deployment = deploy("kimi-k2", "h200-sxm", layout="dp=8,ep=8")
    ffn = next(group.ffn for group in deployment.model.layers if group.ffn.is_moe)
    assert ffn.experts_per_rank(deployment.pools[0].shard()) == 48
    one, eight = (
        memory("kimi-k2", "h200-sxm", layout=layout, engine="ideal").weights["expert"]
        for layout in ("tp=1", "dp=8,ep=8")
    )
    assert one == pytest.approx(8 * eight)


def test_more_ranks_than_kv_heads_do_not_shrink_kv(memory):
    # Case 34, LLMServingSim memory_model.py.
    at_8, at_16 = (memory("llama-3.1-8b", layout=f"tp={tp}").kv_bytes_per_token for tp in (8, 16))
    assert at_8 == at_16
