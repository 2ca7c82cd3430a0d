"""KV bytes and capacities that people read in engine logs (public cases A1)."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.cost.memory import rank_memory
from dse.hardware.dtype import DType
from dse.model.attention.gqa import GQA
from dse.model.attention.sparse import DSA
from dse.model.precision import Precision
from dse.model.shard import WHOLE
from tests import worlds
from tests.cases.conftest import GIB


def test_kimi_k2_thinking_log_line(memory):
    # Case 1, vllm-project/recipes: 46.80 GiB at TP8 hold 715,072 tokens, eight times more at DCP8.
    flags = {"kv_pool": "46.80 GiB", "engine_args": "block_tokens=64"}
    assert memory("kimi-k2", layout="tp=8", **flags).kv_pool_tokens() == 715_072
    parallel = memory("kimi-k2", layout="tp=8,cp=8", **flags).kv_pool_tokens()
    # The printed GiB is rounded: one block of 64 x 8 tokens.
    assert abs(parallel - 5_721_088) <= 512


@pytest.mark.parametrize(
    ("model", "n_bytes"),
    [
        ("deepseek-v3", 70_272),  # case 2, aiconfigurator fixtures
        ("llama-3.1-70b", 327_680),  # case 2
        ("mistral-small-24b", 163_840),  # case 5: head_dim 128, not hidden/heads = 160
        ("qwen3-32b", 262_144),  # case 11: head_dim 128, not hidden/heads = 80
        ("llama-3.1-405b", 516_096),  # case 15: 8 KV heads since the config's revision
        ("qwen2.5-7b", 57_344),  # case 16
    ],
)
def test_kv_bytes_per_token(memory, model, n_bytes):
    assert memory(model, engine="ideal").kv_bytes_per_token == n_bytes


@pytest.mark.parametrize(
    ("model", "gib"),
    [("deepseek-v3", 0.65446), ("deepseek-v2", 0.64373), ("qwen2.5-0.5b", 0.11444)],
)
def test_ten_thousand_tokens(memory, model, gib):
    # Case 3, llm-d-planner tests/integration/test_capacity_planner.py.
    assert round(memory(model).kv_bytes_per_token * 10_000 / GIB, 5) == gib


@pytest.mark.parametrize(
    ("pool", "layout", "n_blocks"),
    [("68.89 GiB", "tp=1", 376_231), ("68.09 GiB", "tp=2", 743_724)],
)
def test_blocks_of_qwen2_5_half_b(memory, pool, layout, n_blocks):
    # Case 4, same file.
    assert memory("qwen2.5-0.5b", layout=layout, kv_pool=pool).n_blocks == n_blocks


def test_mistral_small_blocks_and_concurrency(memory):
    # Case 5, llm-d-planner docs/empirical-vllm-memory-results.md.
    found = memory("mistral-small-24b", kv_pool="28.20 GiB", engine_args="block_tokens=128")
    assert found.n_blocks in (1_443, 1_444)
    assert found.kv_pool_tokens() / 16_000 == pytest.approx(11.55, abs=0.01)
    assert math.ceil(15_049 / 128) == 118
    assert found.request_bytes(15_049) == 118 * 128 * 163_840


def test_rtx_4090_blocks_from_the_catalog(memory):
    # Case 7, LLMServingSim meta.json: vLLM 0.19, utilisation 0.9, 2,588 blocks of 16.
    args = "max_num_batched_tokens=2048,max_num_seqs=256,block_tokens=16"
    found = memory("llama-3.1-8b", "rtx-4090", engine="vllm@0.19", engine_args=args)
    assert found.n_blocks == pytest.approx(2_588, rel=0.03)
    sheet = memory(
        "llama-3.1-8b", "rtx-4090", engine="vllm@0.19", engine_args=args, set_=("gpu.hbm=24 GiB",)
    )
    assert sheet.n_blocks > 1.05 * 2_588


def test_deepseek_v3_2_fp8_keeps_latents_scales_and_index(memory):
    # Case 8, sglang #11309: 975,424 tokens in 43.67 GiB after, 1,462,784 in 54.52 (latent only).
    found = memory("deepseek-v3.2", kv="fp8", kv_pool="43.67 GiB", engine_args="block_tokens=64")
    assert found.kv_bytes_per_token == 48_068
    assert found.kv_pool_tokens() == pytest.approx(975_424, rel=2e-4)
    assert pytest.approx(1_462_784, rel=2e-4) == 54.52 * GIB / 40_016


def test_three_layouts_of_one_latent_model():
    # Case 9, mlx-vlm #1284: DeepSeek-V2, 60 layers: 67.5 KiB, 38.4 KiB, ~4.8 MB expanded.
    shape = {
        "n_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "d_nope": 128,
        "d_rope": 64,
        "d_v": 128,
    }
    latent = DSA(**shape, n_index_heads=0, d_index=0, top_k_tokens=2048, indexer=False)
    expanded = GQA(n_heads=128, n_kv_heads=128, d_head=192, d_v=128)
    assert 60 * latent.kv_bytes_per_token(WHOLE, DType.BF16) / 1024 == 67.5
    assert 60 * latent.kv_bytes_per_token(WHOLE, DType.FP8) / 1024 == pytest.approx(38.4, abs=0.05)
    assert 60 * expanded.kv_bytes_per_token(WHOLE, DType.BF16) == pytest.approx(4.8e6, rel=0.03)


def test_latent_attention_has_no_factor_of_two(memory):
    # Case 11, LMCache #688: the "fix" 2 x 61 x 512 x 2 = 124,928.
    assert memory("deepseek-v3").kv_bytes_per_token != 124_928


def test_growth_of_latent_kv(memory):
    # Case 12, gguf-parser-go #8: 65,536 tokens add 4.29 GiB, not hundreds.
    found = memory("deepseek-v3", engine_args="block_tokens=1")
    growth = found.request_bytes(65_537) - found.request_bytes(1)
    assert growth / GIB == pytest.approx(4.29, abs=0.005)


def test_config_revision_decides_not_the_name(deploy):
    # Case 15, huggingface/blog #2345: 405B was published with 16 KV heads.
    deployment = deploy("llama-3.1-405b", engine="ideal")
    group = deployment.model.layers[0]
    old = replace(group, attention=replace(group.attention, n_kv_heads=16))
    earlier = replace(deployment, model=replace(deployment.model, layers=(old,)))
    assert rank_memory(earlier, earlier.pools[0]).kv_bytes_per_token == 1_032_192


def test_kv_format_is_independent_of_the_weights(memory):
    # Case 16, vllm #22291.
    sizes = {memory("qwen2.5-7b", weights=w).kv_bytes_per_token for w in ("bf16", "int8", "fp8")}
    assert sizes == {57_344}


@given(
    layers=st.integers(1, 100),
    kv=st.sampled_from([1, 2, 4, 8]),
    group=st.integers(1, 8),
    d_head=st.sampled_from([64, 80, 128, 256]),
    d_model=st.integers(1, 64).map(lambda n: 128 * n),
    d_ff=st.integers(1, 64).map(lambda n: 128 * n),
    dtype=st.sampled_from([DType.BF16, DType.FP8]),
)
@settings(max_examples=30)
def test_kv_depends_on_layers_heads_and_format_alone(
    layers, kv, group, d_head, d_model, d_ff, dtype
):
    # Case 17, vllm-fit #2 and #14.
    model = worlds.dense(
        "any", n=layers, d=d_model, heads=kv * group, kv=kv, d_ff=d_ff, vocab=512, d_head=d_head
    )
    deployment = worlds.deployment(model, precision=Precision(kv=dtype))
    found = rank_memory(deployment, deployment.pools[0]).kv_bytes_per_token
    assert found == layers * 2 * kv * d_head * dtype.bytes_per_element


def test_tensor_parallel_ratio_of_blocks(memory):
    # Case 18, transformers #48566: 814 blocks against 3,258 when sharded heads are counted.
    flags = {"kv_pool": "40 GiB"}
    one, four = (memory("qwen3-32b", layout=f"tp={tp}", **flags).n_blocks for tp in (1, 4))
    assert four / one == pytest.approx(4.0, abs=1e-3)
    assert pytest.approx(4.0, abs=0.01) == 3_258 / 814


def test_qwen3_30b_on_four_h20(memory):
    # Case 21, InferSim README, its GB are GiB: weights 15.19 without vocabulary, 96 KiB a token.
    found = memory("qwen3-30b-a3b", "h20-96gb", layout="dp=4,ep=4", engine="ideal")
    layers = sum(
        size for cls, size in found.weights.items() if cls in {"attention", "expert", "router"}
    )
    assert layers / GIB == pytest.approx(15.19, rel=0.01)
    assert found.kv_bytes_per_token == 98_304
    room = 60.81 * GIB
    assert 100 * 6_144 * found.kv_bytes_per_token <= room < 109 * 6_144 * found.kv_bytes_per_token
