"""Memory of a rank: golden KV bytes, parameter counts, and pool arithmetic to the block."""

from dataclasses import replace

import pytest

from dse.cost.memory import aligned_block_tokens, checkpoint_factor, rank_memory
from dse.hardware.dtype import DType
from dse.model.precision import Precision
from dse.serving.deployment import SpeculativeDecoding
from dse.serving.layout import Layout
from tests import worlds

GIB = 2**30


def memory_of(deployment):
    return rank_memory(deployment, deployment.pools[0])


@pytest.mark.parametrize(
    ("model", "kv", "n_bytes"),
    [
        (worlds.deepseek_v3(), DType.BF16, 70_272),
        (worlds.deepseek_v3(sparse=True), DType.BF16, 78_324),
        (worlds.deepseek_v3(sparse=True), DType.FP8, 48_068),
        (worlds.qwen3_32b(), DType.BF16, 262_144),
        (worlds.llama_8b(), DType.BF16, 131_072),
    ],
)
def test_kv_bytes_per_token(model, kv, n_bytes):
    memory = memory_of(worlds.deployment(model, precision=Precision(kv=kv)))
    assert memory.kv_bytes_per_token == n_bytes


def test_latent_kv_ignores_tp_and_is_divided_by_cp():
    model = worlds.deepseek_v3()
    kv = [
        memory_of(worlds.deployment(model, layout=layout)).kv_bytes_per_token
        for layout in (Layout(), Layout(tp=8), Layout(tp=8, cp=8))
    ]
    assert kv == [70_272, 70_272, 70_272 / 8]


def test_replicated_kv_heads_do_not_shrink():
    model = worlds.llama_8b()
    at_8, at_16 = (
        memory_of(worlds.deployment(model, layout=Layout(tp=tp))).kv_bytes_per_token
        for tp in (8, 16)
    )
    assert at_8 == at_16 == 131_072 / 8


def test_blocks_of_a_stated_pool():
    # Kimi-K2 stores the same latent: 46.80 GiB hold 11,173 blocks of 64 (vLLM recipes).
    by = worlds.engine(block_tokens=64)
    model = worlds.deepseek_v3()
    one = worlds.deployment(model, by=by, layout=Layout(tp=8), kv_pool_bytes=46.80 * GIB)
    assert memory_of(one).n_blocks == 11_173
    assert memory_of(one).kv_pool_tokens() == 715_072
    eight = worlds.deployment(model, by=by, layout=Layout(tp=8, cp=8), kv_pool_bytes=46.80 * GIB)
    assert abs(memory_of(eight).kv_pool_tokens() - 5_721_088) <= 64 * 8


def test_weights_by_hand():
    # tiny: d 128, 8 query and 4 KV heads of 16, FFN 256, vocabulary 1024, 2 layers, 16 bits.
    memory = memory_of(worlds.deployment(worlds.tiny()))
    attention = 128 * (8 + 4 + 4) * 16 + 8 * 16 * 128
    assert memory.weights["attention"] == 2 * 2 * attention
    assert memory.weights["dense_ffn"] == 2 * 2 * 3 * 128 * 256
    assert memory.weights["embedding"] == memory.weights["head"] == 2 * 1024 * 128
    assert memory.weights["norm"] == 2 * (2 * 2 * 128 + 128)
    assert memory.weight_bytes == sum(memory.weights.values())


def test_tensor_parallel_halves_all_but_norms():
    whole = memory_of(worlds.deployment(worlds.tiny())).weights
    half = memory_of(worlds.deployment(worlds.tiny(), layout=Layout(tp=2))).weights
    assert half["norm"] == whole["norm"]
    for cls in ("attention", "dense_ffn", "embedding", "head"):
        assert half[cls] == whole[cls] / 2


def test_expert_parallel_holds_its_share():
    layout = Layout(dp=8, ep=8)
    memory = memory_of(worlds.deployment(worlds.mixture(), layout=layout))
    assert memory.weights["expert"] == 2 * 2 * (16 / 8) * 3 * 128 * 64
    assert memory.weights["router"] == 2 * 2 * 16 * 128


def test_exact_account_of_deepseek_v3_on_sixteen_ranks():
    # physics, section 3: 43.1 and 60.0 GB with bf16 embeddings and replicated projections.
    layouts = (Layout(tp=16), Layout(dp=16, ep=16))
    found = [
        memory_of(
            worlds.deployment(worlds.deepseek_v3(), precision=worlds.FP8_BLOCK, layout=layout)
        ).weight_bytes
        for layout in layouts
    ]
    assert found == pytest.approx([43.1e9, 60.0e9], rel=0.01)


def test_pipeline_stage_with_the_embedding_and_a_tied_head():
    model = replace(worlds.tiny(), tied_embeddings=True)
    one = memory_of(worlds.deployment(model)).weight_bytes
    stages = memory_of(worlds.deployment(model, layout=Layout(pp=2))).weight_bytes
    embedding = 2 * 1024 * 128
    # The last stage copies the embedding as its head and holds the final norm.
    assert stages == (one - embedding - 2 * 128) / 2 + embedding + 2 * 128


def test_speculation_loads_its_module_and_one_layer_of_kv():
    model = worlds.deepseek_v3(speculative=True)
    plain = worlds.deployment(model, precision=worlds.FP8_BLOCK)
    draft = replace(plain, speculative=SpeculativeDecoding(method="mtp", n_draft=1, acceptance=0.8))
    assert memory_of(draft).kv_bytes_per_token == 62 * 576 * 2
    more = memory_of(draft).weight_bytes - memory_of(plain).weight_bytes
    assert more == pytest.approx(11.5e9, rel=0.03)


def test_checkpoint_bytes_win():
    model = replace(worlds.tiny(), checkpoint_bytes=2.2 * worlds.tiny().parameters())
    assert checkpoint_factor(model, Precision()) == pytest.approx(1.1)
    assert checkpoint_factor(model, Precision(weights=DType.FP8)) == 1.0


def test_pool_rules():
    # 100 GB, 10 GB of overhead, half of it for KV.
    weights = memory_of(worlds.deployment(worlds.tiny())).weight_bytes
    total, free = (
        memory_of(
            worlds.deployment(
                worlds.tiny(),
                by=worlds.engine(
                    memory={"pool_rule": rule, "overhead_bytes": 10e9}, hbm_fraction=0.5
                ),
            )
        ).kv_pool_bytes
        for rule in ("of_total", "of_free")
    )
    assert total == 50e9 - weights - 10e9
    assert free == 0.5 * (100e9 - weights - 10e9)


def test_overheads_are_named_and_grow_with_batched_tokens():
    def overheads(**changes):
        memory = {
            "overhead_bytes": None,
            "context_bytes": 1e9,
            "graph_bytes": 2e9,
            "multi_gpu_bytes": 3e9,
            "activation_bytes_per_token_width": 4.0,
        }
        by = worlds.engine(memory=memory, **changes)
        return memory_of(worlds.deployment(worlds.tiny(), by=by, layout=Layout(tp=2))).overheads

    found = overheads(max_num_batched_tokens=1000, max_num_seqs=10)
    assert found == {
        "context": 1e9,
        "graphs": 2e9,
        "communication": 3e9,
        "activations": 1000 * 4.0 * (128 + 256 / 2) + 10 * 1024 * 4,
    }
    assert overheads(max_num_batched_tokens=2000)["activations"] > found["activations"]


def test_windows_store_a_window_or_the_whole_context():
    per_layer = 4 * 32 * 2
    on = memory_of(worlds.deployment(worlds.sliding_hybrid()))
    assert on.kv_bytes_per_token == per_layer
    assert on.windowed_bytes_per_token == ((1024, 5 * per_layer),)
    assert on.request_bytes(10_000) == per_layer * 10_000 + 5 * per_layer * 1024
    assert on.request_bytes(100) == 6 * per_layer * 112
    off = memory_of(
        worlds.deployment(worlds.sliding_hybrid(), by=worlds.engine(memory={"hybrid_kv": False}))
    )
    assert off.kv_bytes_per_token == 6 * per_layer
    assert off.request_bytes(10_000) == 6 * per_layer * 10_000


def test_recurrent_state_is_fixed_per_request():
    plain = worlds.engine(memory={"state_page_aligned": False})
    memory = memory_of(worlds.deployment(worlds.linear_hybrid(), by=plain))
    state = 8 * 16 * 16 * 4 + (8 * 16 + 2 * 8 * 16) * 3 * 2
    assert memory.kv_fixed_bytes_per_request == 3 * state
    assert memory.request_bytes(160) == 3 * state + 160 * 4 * 32 * 2


def test_state_pages_take_whole_attention_blocks():
    memory = memory_of(worlds.deployment(worlds.linear_hybrid()))
    per_token, state = 4 * 32 * 2, 8 * 16 * 16 * 4 + (8 * 16 + 2 * 8 * 16) * 3 * 2
    block = aligned_block_tokens(state, per_token, 16)
    assert block % 16 == 0
    assert block * per_token >= state > (block - 16) * per_token
    assert memory.kv_fixed_bytes_per_request == 3 * block * per_token


def test_requests_at_once():
    deployment = worlds.deployment(worlds.tiny(), layout=Layout(dp=2), kv_pool_bytes=1e6)
    memory = memory_of(deployment)
    per_request = 2 * 4 * 32 * 2 * 112
    assert memory.b_max(100) == 2 * int(1e6 // per_request)
    assert memory.fits


def test_nothing_fits_beside_weights_that_do_not():
    on = worlds.gpu(hbm_bytes=1e6)
    memory = memory_of(worlds.deployment(worlds.tiny(), on=on))
    assert memory.kv_pool_bytes < 0
    assert not memory.fits
    assert memory.b_max(1) == memory.kv_pool_tokens() == 0
