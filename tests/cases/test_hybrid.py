"""Sliding windows, recurrent state and page alignment (public cases A3)."""

import pytest

from dse.cost.memory import aligned_block_tokens
from dse.walls.describe import definition
from tests.cases.conftest import GIB

MIB = 2.0**20


def test_fixed_and_per_token_are_told_apart(memory):
    # Case 35, vllm #51041: the log prints concurrency x length, so bytes per token seem to vary.
    found = memory("deepseek-v4-flash", "h20-96gb", layout="tp=8", kv_pool="40 GiB")
    assert found.kv_fixed_bytes_per_request > 0
    for length in (4_096, 65_536):
        logged = found.kv_pool_tokens(length)
        assert logged == pytest.approx(40 * GIB / found.request_bytes(length) * length, abs=1)
    assert found.kv_pool_tokens(65_536) > found.kv_pool_tokens(4_096)


def test_capacity_names_its_definition(deploy):
    # Case 36, configiq #112.
    deployment = deploy("gemma-4-31b", "h200-sxm", kv="fp8", engine="vllm", hbm_fraction="0.85")
    text = definition(deployment, deployment.pools[0])
    for word in ("fp8 KV", "0.85", "driver-visible", "windows freed", "vllm@"):
        assert word in text


def test_hybrid_manager_changes_capacity_tenfold(memory):
    # Case 37, vllm #43308: 55k tokens with it off, 525k with it on, in about 50 GB.
    flags = {"gpu": "a100-sxm", "kv_pool": "50 GB"}
    on = memory("gemma-4-31b", engine_args="hybrid_kv=on", **flags)
    off = memory("gemma-4-31b", engine_args="hybrid_kv=off", **flags)
    at = 262_144
    ratio = on.kv_pool_tokens(at) / off.kv_pool_tokens(at)
    assert 8 <= ratio <= 12
    assert off.kv_pool_tokens(at) == pytest.approx(55_000, rel=0.1)
    assert on.kv_pool_tokens(at) == pytest.approx(525_000, rel=0.15)


def test_window_is_capped_by_the_context(memory):
    # Case 37, tt-xla #5727: 50 layers slide over 1,024 tokens, 10 see everything.
    on = memory("gemma-4-31b", engine_args="hybrid_kv=on,block_tokens=1")
    off = memory("gemma-4-31b", engine_args="hybrid_kv=off,block_tokens=1")
    assert on.request_bytes(1_000) == off.request_bytes(1_000)
    assert on.request_bytes(2_000) < off.request_bytes(2_000)


def test_recurrent_state_beside_kv(memory):
    # Case 38, lmstudio #1862: 16,384 MiB of KV at 262,144 tokens, 149.6 MiB of state a sequence.
    found = memory("qwen3.6-27b", engine="ideal", engine_args="state_page_aligned=off")
    assert found.kv_bytes_per_token * 262_144 / MIB == 16_384
    assert found.kv_fixed_bytes_per_request / MIB == pytest.approx(149.6, rel=0.03)


def test_concurrency_of_a_hybrid_is_not_pool_by_length(memory):
    # Case 40, home-ops #13322: a longer maximum length costs less than its ratio.
    found = memory("nemotron-3-nano-30b-a3b", kv_pool="10 GiB")
    short, long = (10 * GIB / found.request_bytes(n) for n in (65_536, 131_072))
    assert short / long < 2.0
    assert found.kv_pool_tokens(131_072) > found.kv_pool_tokens(65_536)


def test_attention_pages_match_state_pages():
    # Case 41: vllm-ascend #15408, 1,048,576 B of state at 1,024 B a token; vllm #24280, 672 tokens
    # for 128 heads of 80 x 128 in 16 bits, its convolution, and 4,096 B a token.
    assert aligned_block_tokens(1_048_576, 1_024, 16) == 1_024
    state = 128 * 80 * 128 * 2 + (128 * 80 + 2 * 8 * 128) * 3 * 2
    assert aligned_block_tokens(state, 4_096, 16) == 672


def test_batched_tokens_are_an_input_of_the_kv_wall(memory):
    # Case 43, vllm #28228 and #54703.
    few, many = (
        memory(
            "llama-3.1-8b", engine="vllm", engine_args=f"max_num_batched_tokens={n}"
        ).kv_pool_bytes
        for n in (2_048, 16_384)
    )
    assert few > many


@pytest.mark.parametrize(
    ("model", "n_bytes"),
    [
        ("nemotron-h-56b", 40_960),
        ("nemotron-3-nano-30b-a3b", 6_144),
        ("nemotron-super-49b", 200_704),
    ],
)
def test_layers_without_attention_store_nothing(memory, model, n_bytes):
    # Case 44, configurations of the Nemotron family.
    assert memory(model, engine="ideal").kv_bytes_per_token == n_bytes


def test_replicated_heads_of_a_hybrid(memory):
    # Case 47, sglang #19086: 2 KV heads at TP4 are replicated, not halved again.
    at_2, at_4 = (
        memory("qwen3.5-397b-a17b", "h200-sxm", layout=f"tp={tp}").kv_bytes_per_token
        for tp in (2, 4)
    )
    assert at_2 == at_4
