"""Each way in which a config.json misleads: one small config a trap."""

import json
from pathlib import Path
from typing import Any

import pytest

from dse.base.errors import UserError
from dse.hardware import DType
from dse.model import Model
from dse.model.hf import load, model_from
from dse.model.shard import WHOLE
from tests.model.configs import HYBRID, LATENT, PLAIN, without


def model(config: dict[str, Any]) -> Model:
    return model_from(config, name="trap")


def kv_bytes(found: Model, kv: DType = DType.BF16) -> float:
    return sum(layer.attention.kv_bytes_per_token(WHOLE, kv) for layer in found.expanded())


def moe_config(**keys: Any) -> dict[str, Any]:
    return {**PLAIN, "model_type": "mixtral", **keys}


def test_a_plain_decoder_by_hand() -> None:
    found = model(PLAIN)
    attention = 64 * 64 + 2 * 64 * 16 + 64 * 64  # q, k and v of two heads of 8, o
    layer = attention + 3 * 64 * 256 + 2 * 64
    assert found.parameters() == 4 * layer + 2 * 1000 * 64 + 64
    assert kv_bytes(found) == 4 * 2 * 2 * 8 * 2


def test_the_language_model_is_nested() -> None:
    nested = {
        "text_config": {**without(PLAIN, "tie_word_embeddings"), "model_type": "qwen3_vl_text"},
        "model_type": "qwen3_vl",
        "tie_word_embeddings": True,
        "vision_config": {"depth": 2, "hidden_size": 16, "intermediate_size": 32},
    }
    found = model(nested)
    assert found.n_layers == 4
    assert found.tied_embeddings, "the top level says what the text part leaves out"
    assert found.multimodal is not None
    assert found.multimodal.parameters > 2 * (4 * 16 * 16 + 2 * 16 * 32)


@pytest.mark.parametrize(
    "key", ["n_routed_experts", "num_experts", "num_local_experts", "num_routed_experts"]
)
@pytest.mark.parametrize(
    "top_k", ["num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token"]
)
def test_experts_and_top_k_under_every_spelling(key: str, top_k: str) -> None:
    found = model(moe_config(**{key: 8, top_k: 2, "moe_intermediate_size": 32}))
    ffn = found.layers[0].ffn
    assert (ffn.n_experts, ffn.top_k, ffn.d_expert) == (8, 2, 32)


def test_expert_width_may_be_the_intermediate_size() -> None:
    ffn = model(moe_config(num_local_experts=8, num_experts_per_tok=2)).layers[0].ffn
    assert ffn.d_expert == PLAIN["intermediate_size"]


@pytest.mark.parametrize("dense_key", ["intermediate_size_mlp", "dense_intermediate_size"])
def test_dense_width_beside_an_expert_width_called_intermediate_size(dense_key: str) -> None:
    config = moe_config(
        model_type="llama4_text",
        num_local_experts=8,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        **{dense_key: 512},
    )
    dense, routed, *_ = (layer.ffn for layer in model(config).expanded())
    assert dense.d_ff == 512
    assert (routed.d_expert, routed.d_shared) == (256, 256)


def test_an_unused_intermediate_size_adds_no_parameters() -> None:
    config = {
        **PLAIN,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    assert model(config).parameters() == model({**config, "intermediate_size": 9999}).parameters()


def routed(config: dict[str, Any]) -> list[bool]:
    return [layer.ffn.is_moe for layer in model(config).expanded()]


def test_which_layers_route() -> None:
    assert routed({**LATENT, "first_k_dense_replace": 3}) == [False, False, False, True]
    assert routed({**LATENT, "first_k_dense_replace": 0, "moe_layer_freq": 2}) == [
        True,
        False,
        True,
        False,
    ]
    assert routed({**LATENT, "moe_layer_freq": [0, 1, 1, 0]}) == [False, True, True, False]
    assert routed({**LATENT, "mlp_layer_types": ["dense", "sparse", "sparse", "dense"]}) == [
        False,
        True,
        True,
        False,
    ]
    stepped = {**PLAIN, "model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 1}
    stepped |= {"moe_intermediate_size": 32, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    assert routed(stepped) == [False, True, False, False]


def test_layers_may_be_listed_and_not_counted() -> None:
    kinds = ["mamba", "moe", "attention", "mlp"] * 3
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    found = model({**HYBRID, **experts, "layers_block_type": kinds})
    assert found.n_layers == 12
    assert kv_bytes(found) == 3 * 2 * 2 * 8 * 2
    by_pattern = model({**HYBRID, **experts, "hybrid_override_pattern": "ME*-" * 3})
    assert by_pattern.layers == found.layers


def test_layers_without_attention_or_feed_forward() -> None:
    kept = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.0}}
    bare = {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": {"ffn_mult": 6.0}}
    config = {**PLAIN, "model_type": "nemotron-nas", "num_key_value_heads": None}
    config |= {"intermediate_size": None, "block_configs": [kept, bare, kept, kept]}
    found = model(config)
    assert kv_bytes(found) == 3 * 2 * 2 * 8 * 2
    widths = [layer.ffn.d_ff for layer in found.expanded()]
    assert widths == [256, 256, 256, 256], "2 · mult · hidden / 3, up to a multiple of 256"


def test_head_dim_means_nothing_beside_a_latent() -> None:
    plain, misled = model(LATENT), model({**LATENT, "head_dim": 9999, "qk_head_dim": 24})
    assert plain.layers == misled.layers
    assert kv_bytes(plain) == 4 * (32 + 8) * 2


def test_head_dim_need_not_be_hidden_over_heads() -> None:
    assert model({**PLAIN, "head_dim": 32}).layers[0].attention.d_head == 32
    renamed = {**HYBRID, "hybrid_override_pattern": "M*", "attention_head_dim": 32}
    assert [layer.attention.d_head for layer in model(renamed).layers[1:]] == [32]


def test_missing_head_dim_is_an_error_where_it_cannot_be_derived() -> None:
    with pytest.raises(UserError, match="head_dim"):
        model({**PLAIN, "num_attention_heads": 7})


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_dtype_under_both_names_or_none(key: str) -> None:
    bare = without(PLAIN, "torch_dtype")
    assert model({**bare, key: "float16"}).checkpoint is DType.FP16
    assert model(bare).checkpoint is DType.BF16


def test_embeddings_are_tied_by_default_in_gemma_only() -> None:
    bare = without(PLAIN, "tie_word_embeddings")
    assert model({**bare, "model_type": "gemma2", "sliding_window": 64}).tied_embeddings
    assert not model(bare).tied_embeddings


def kinds(config: dict[str, Any]) -> list[str]:
    return [layer.attention.kind for layer in model(config).expanded()]


def test_a_window_that_is_switched_off_is_none() -> None:
    windowed = {**PLAIN, "model_type": "qwen2", "sliding_window": 128, "max_window_layers": 2}
    assert kinds({**windowed, "use_sliding_window": False}) == ["gqa"] * 4
    assert kinds({**windowed, "use_sliding_window": True}) == ["gqa", "gqa", "sliding", "sliding"]


def test_a_window_longer_than_the_context_is_none() -> None:
    assert kinds({**PLAIN, "model_type": "phi3", "sliding_window": 262144}) == ["gqa"] * 4
    assert kinds({**PLAIN, "model_type": "mistral", "sliding_window": 1024}) == ["sliding"] * 4


def test_patterns_of_windows() -> None:
    window = {"sliding_window": 64}
    assert kinds({**PLAIN, **window, "model_type": "gemma2"}) == ["sliding", "gqa"] * 2
    six = {**PLAIN, **window, "model_type": "gemma3_text", "num_hidden_layers": 7}
    assert kinds(six) == [*["sliding"] * 5, "gqa", "sliding"]
    named = ["sliding_attention", "full_attention"] * 2
    assert kinds({**PLAIN, **window, "layer_types": named}) == ["sliding", "gqa"] * 2
    marked = {**PLAIN, **window, "hybrid_layer_pattern": [0, 1, 1, 0]}
    assert kinds(marked) == ["gqa", "sliding", "sliding", "gqa"]
    chunked = {**PLAIN, "model_type": "llama4_text", "attention_chunk_size": 64}
    assert kinds(chunked) == ["sliding", "sliding", "sliding", "gqa"]


def test_two_heads_per_layer_kind() -> None:
    config = {
        **PLAIN,
        "model_type": "gemma4_text",
        "sliding_window": 64,
        "head_dim": 16,
        "global_head_dim": 32,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    }
    near, far = (layer.attention for layer in list(model(config).expanded())[:2])
    assert (near.n_kv_heads, near.d_head, near.keys_are_values) == (2, 16, False)
    assert (far.n_kv_heads, far.d_head, far.keys_are_values) == (1, 32, True)
    assert far.kv_bytes_per_token(WHOLE, DType.BF16) == 2 * 32 * 2, "both are still cached"


def test_an_infinity_literal_is_read(tmp_path: Path) -> None:
    text = json.dumps({**HYBRID, "hybrid_override_pattern": "M*", "time_step_limit": [0.0]})
    path = tmp_path / "config.json"
    path.write_text(text.replace("[0.0]", "[0.0, Infinity]"))
    assert load(path).n_layers == 2


def test_missing_key_value_heads_mean_multi_head() -> None:
    assert model(without(PLAIN, "num_key_value_heads")).layers[0].attention.n_kv_heads == 8


def test_gpt2_style_names() -> None:
    config = {
        "model_type": "phi-msft",
        "n_embd": 64,
        "n_head": 8,
        "n_head_kv": None,
        "n_inner": None,
        "n_layer": 2,
        "n_positions": 128,
        "vocab_size": 100,
        "tie_word_embeddings": False,
    }
    found = model(config)
    assert found.layers[0].ffn.d_ff == 256
    assert not found.layers[0].ffn.gated
    assert found.extra_parameters == 100, "the head has a bias"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (without(PLAIN, "hidden_size"), "hidden_size"),
        (without(PLAIN, "num_hidden_layers"), "num_hidden_layers"),
        (without(PLAIN, "vocab_size"), "vocab_size"),
        (without(PLAIN, "intermediate_size"), "intermediate_size"),
        (without(LATENT, "v_head_dim"), "v_head_dim"),
        (
            without({**LATENT, "model_type": "brand_new"}, "num_experts_per_tok"),
            "num_experts_per_tok",
        ),
        ({**PLAIN, "quantum_heads": 3}, "quantum_heads"),
        ({**PLAIN, "layer_types": ["full_attention"] * 3}, "layer_types"),
        ({**PLAIN, "layer_types": ["ring_attention"] * 4}, "ring_attention"),
        ({**PLAIN, "num_kv_shared_layers": 2}, "num_kv_shared_layers"),
        ({**PLAIN, "attn_type_list": [0, 1, 1, 1]}, "attn_type_list"),
        ({**PLAIN, "word_embed_proj_dim": 32}, "word_embed_proj_dim"),
        ({**PLAIN, "vocab_size": "many"}, "vocab_size"),
        ({**PLAIN, "num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({**LATENT, "num_experts_per_tok": 17}, "17 experts per token of 16"),
        ({**PLAIN, "torch_dtype": "posit8"}, "posit8"),
        ({**HYBRID, "hybrid_override_pattern": "M?"}, r"\?"),
        ({**LATENT, "indexer_types": ["full"] * 4, "index_topk": 64}, "index_n_heads"),
    ],
)
def test_what_is_missing_or_unknown_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        model(config)


def test_a_known_harmless_key_can_be_let_through() -> None:
    config = {**PLAIN, "quantum_heads": 3}
    assert model_from(config, name="x", ignore=["quantum_heads"]).n_layers == 4


def test_an_unknown_type_with_known_keys_is_a_plain_decoder() -> None:
    assert model({**PLAIN, "model_type": "brand_new"}).layers == model(PLAIN).layers


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for name, text in (("none.json", None), ("bad.json", "{"), ("list.json", "[]")):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        with pytest.raises(UserError, match=name):
            load(path)


def test_kv_heads_that_do_not_divide_the_heads_are_an_error() -> None:
    with pytest.raises(UserError, match="KV heads 3 ="):
        model({**PLAIN, "num_key_value_heads": 3})
