"""Importing recurrent, sparse and compressed attention."""

from typing import Any

import pytest

from dse.base.errors import UserError
from dse.hardware import DType
from dse.model import Model
from dse.model.hf import model_from
from dse.model.shard import WHOLE
from tests.model.configs import HYBRID, LATENT, PLAIN, without

DELTA: dict[str, Any] = {
    **PLAIN,
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_value_head_dim": 16,
    "linear_key_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
KIMI: dict[str, Any] = {
    **without(LATENT, "n_routed_experts"),
    "model_type": "kimi_linear",
    "num_experts": 16,
    "mla_use_output_gate": True,
    "linear_attn_config": {
        "kda_layers": [1, 2, 3],
        "full_attn_layers": [4],
        "num_heads": 8,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
    },
}
COMPRESSED: dict[str, Any] = {
    **without(LATENT, "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "first_k_dense_replace"),
    "model_type": "deepseek_v4",
    "head_dim": 32,
    "o_lora_rank": 16,
    "o_groups": 2,
    "sliding_window": 128,
    "compress_ratios": [0, 4, 128, 4, 0],
    "index_n_heads": 4,
    "index_head_dim": 16,
    "index_topk": 64,
    "num_nextn_predict_layers": 1,
}


def model(config: dict[str, Any]) -> Model:
    return model_from(config, name="m")


def test_every_fourth_layer_attends_to_all() -> None:
    found = model(DELTA)
    kinds = [layer.attention.kind for layer in found.expanded()]
    assert kinds == ["linear", "linear", "linear", "gqa"]
    full = found.layers[-1].attention
    assert full.output_gate, "Qwen3-Next gates its output"
    linear = found.layers[0].attention
    assert linear.state_dtype is DType.BF16
    recurrent, window = 8 * 16 * 16 * 2, (8 * 16 + 2 * 4 * 16) * 3 * 2
    assert linear.state_bytes(WHOLE, DType.BF16) == recurrent + window


def test_the_state_dtype_is_the_config_s() -> None:
    found = model({**DELTA, "mamba_ssm_dtype": "float32"})
    assert found.layers[0].attention.state_dtype is DType.FP32
    with pytest.raises(UserError, match="float8"):
        model({**DELTA, "mamba_ssm_dtype": "float8"})


def test_page_of_qwen35_state() -> None:
    # https://github.com/vllm-project/vllm-ascend/issues/15408: 1,048,576 B of state in fp32.
    config = {**DELTA, "linear_num_value_heads": 16, "linear_value_head_dim": 128}
    config |= {"linear_key_head_dim": 128, "mamba_ssm_dtype": "float32"}
    part = model(config).layers[0].attention
    assert part.d_inner * part.d_state * part.state_dtype.bytes_per_element == 1_048_576


def test_mamba_projections_by_hand() -> None:
    found = model({**HYBRID, "hybrid_override_pattern": "M"})
    mixer = found.layers[0].attention
    inner, groups = 16 * 8, 2 * 16
    sizes = {t.name: t.elements for t in mixer.tensors(64, WHOLE)}
    assert sizes["in_proj"] == 64 * (2 * inner + 2 * groups + 16)
    assert sizes["out_proj"] == inner * 64


def test_kimi_linear_counts_layers_from_one() -> None:
    found = model(KIMI)
    kinds = [layer.attention.kind for layer in found.expanded()]
    assert kinds == ["linear", "linear", "linear", "mla"]
    latent = found.layers[-1].attention
    assert latent.output_gate
    delta = found.layers[0].attention
    low, full = delta, model(_gated(KIMI)).layers[0].attention
    assert not low.full_rank_gate
    assert _size(full) - _size(low) == 64 * 128 - (64 * 16 + 16 * 128)


def _gated(config: dict[str, Any]) -> dict[str, Any]:
    linear = {**config["linear_attn_config"], "use_full_rank_gate": True}
    return {**config, "linear_attn_config": linear}


def _size(part: Any) -> float:
    return sum(tensor.total_elements for tensor in part.tensors(64, WHOLE))


@pytest.mark.parametrize(
    "change", [{"kda_layers": [1, 2]}, {"rotations": 3}], ids=["lists", "unknown"]
)
def test_kimi_linear_lists_must_name_every_layer(change: dict[str, Any]) -> None:
    linear = {**KIMI["linear_attn_config"], **change}
    with pytest.raises(UserError, match="linear_attn_config"):
        model({**KIMI, "linear_attn_config": linear})


def test_indexers_may_be_shared() -> None:
    index = {"index_n_heads": 4, "index_head_dim": 16, "index_topk": 64}
    owners = ["full", "shared", "shared", "full"]
    found = model({**LATENT, **index, "model_type": "glm_moe_dsa", "indexer_types": owners})
    assert [layer.attention.indexer for layer in found.expanded()] == [True, False, False, True]
    latent = (32 + 8) * 2
    stored = [layer.attention.kv_bytes_per_token(WHOLE, DType.BF16) for layer in found.expanded()]
    assert stored == [latent + 20, latent, latent, latent + 20]


def test_compressed_context_by_hand() -> None:
    found = model(COMPRESSED)
    parts = [layer.attention for layer in found.expanded()]
    entry, key = 32 * 2, 16 + 4
    stored = [part.kv_bytes_per_token(WHOLE, DType.BF16) for part in parts]
    assert stored == [0, (entry + key) / 4, entry / 128, (entry + key) / 4]
    assert {part.state_bytes(WHOLE, DType.BF16) for part in parts} == {128 * entry}
    # At 1,024 tokens: the window, all 8 coarse entries, 64 of 256 fine ones and every index key.
    reads = [part.read_bytes(1024, WHOLE, DType.BF16) for part in parts]
    fine = (128 + 64) * entry + 256 * key
    assert reads == [128 * entry, fine, (128 + 8) * entry, fine]
    assert found.speculative is not None
    assert found.speculative.layer.attention.ratio == 0


def test_fp8_entries_keep_rope_in_16_bits() -> None:
    part = model(COMPRESSED).layers[0].attention
    assert part.state_bytes(WHOLE, DType.FP8) == 128 * (24 + 2 * 8 + 8)


SPARSE: dict[str, Any] = {
    "use_sparse_attention": True,
    "sparse_attention_freq": [0, 1, 1, 1],
    "sparse_num_index_heads": 2,
    "sparse_index_dim": 16,
    "sparse_topk_blocks": 4,
    "sparse_block_size": 32,
}


def test_block_sparse_reads_the_chosen_blocks() -> None:
    keys = {"head_dim": 8, "num_local_experts": 0, "sparse_attention_config": SPARSE}
    found = model({**PLAIN, **keys, "model_type": "minimax_m3"})
    kinds = [layer.attention.kind for layer in found.expanded()]
    assert kinds == ["gqa", "block_sparse", "block_sparse", "block_sparse"]
    part = found.layers[-1].attention
    per_token, key = 2 * 2 * 8 * 2, 16 * 2
    assert part.kv_bytes_per_token(WHOLE, DType.BF16) == per_token + key
    assert part.read_bytes(1000, WHOLE, DType.BF16) == 128 * per_token + 1000 * key
    assert part.read_bytes(100, WHOLE, DType.BF16) == 100 * (per_token + key)
