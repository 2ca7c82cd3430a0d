"""What a checkpoint stores in which format, from every way that configs say it."""

import json
from pathlib import Path
from typing import Any

import pytest

from dse.base.errors import UserError
from dse.hardware import DType
from dse.model import Model
from dse.model.hf import load, model_from
from dse.model.hf._modules import canonical, listed, lookup
from tests.model.configs import LATENT, PLAIN


def stored(quantisation: dict[str, Any] | None, base: dict[str, Any] = PLAIN, **keys: Any) -> Model:
    config = {**base, "quantization_config": quantisation, **keys}
    return model_from(config, name="q")


def groups(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, DType.FP8_BLOCK),
        ({"quant_method": "fp8"}, DType.FP8),
        ({"quant_method": "mxfp4"}, DType.MXFP4),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, DType.INT4),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, DType.INT4),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, DType.NVFP4),
        (groups(num_bits=8, type="float"), DType.FP8),
        (groups(num_bits=8, type="int"), DType.INT8),
        (groups(num_bits=4, type="int", group_size=32), DType.INT4_G32),
        (groups(num_bits=4, type="float", group_size=32), DType.MXFP4),
        (groups(num_bits=4, type="float", group_size=16), DType.NVFP4),
    ],
)
def test_formats(config: dict[str, Any], expected: DType) -> None:
    found = stored(config)
    assert found.checkpoint is expected
    assert found.quantised == ("attention", "dense_ffn")
    assert found.checkpoint_bytes is None, "the classes say it exactly"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"quant_method": "bitsandbytes"}, "bitsandbytes"),
        ({"quant_algo": "W2A2"}, "W2A2"),
        (groups(num_bits=3, type="int"), "3-bit"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "X1"}}}, "X1"),
    ],
)
def test_an_unknown_scheme_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        stored(config)


def test_embeddings_head_norms_and_router_stay_16_bit() -> None:
    found = stored({"quant_method": "fp8"}, LATENT)
    assert found.quantised == ("attention", "dense_ffn", "expert", "shared_expert")


def test_excluded_modules_by_prefix_glob_and_expression() -> None:
    for pattern in ("model.layers.*.self_attn", "*self_attn*", "re:.*self_attn.*"):
        found = stored({"quant_method": "mxfp4", "modules_to_not_convert": [pattern, "lm_head"]})
        assert found.quantised == ("dense_ffn",), pattern


def test_a_class_that_is_mixed_brings_its_exact_bytes() -> None:
    # Layer 0 keeps its attention in 16 bits; the other three are FP8.
    excluded = ["lm_head", "model.layers.0.self_attn*"]
    found = stored({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": excluded})
    attention, ffn = 64 * 96 + 64 * 64, 3 * 64 * 256
    rest = 4 * 2 * 64 + 2 * 1000 * 64 + 64
    expected = 2 * attention + 3 * attention + 4 * ffn + 2 * rest
    assert found.quantised == ("attention", "dense_ffn")
    assert found.checkpoint_bytes == expected


def test_a_companion_file_wins_and_names_mixed_layers(tmp_path: Path) -> None:
    layers = {f"model.layers.{i}.mlp.{p}_proj": "NVFP4" for i in range(4) for p in ("up", "down")}
    layers |= {f"model.layers.{i}.self_attn.{p}_proj": "FP8" for i in range(4) for p in "qo"}
    layers["lm_head"] = "W4A16_NVFP4"
    quantised = {name: {"quant_algo": algorithm} for name, algorithm in layers.items()}
    companion = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": quantised}}
    companion["quantization"]["kv_cache_quant_algo"] = "FP8"
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(companion))
    found = load(tmp_path / "config.json")
    assert found.checkpoint is DType.NVFP4
    assert found.quantised == ("dense_ffn", "head")
    assert found.exceptions == {"attention": DType.FP8}
    assert "FP8" in found.notes


def test_expert_dtype_differs_from_the_rest() -> None:
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    found = stored(config, LATENT, expert_dtype="fp4")
    assert found.checkpoint is DType.MXFP4
    assert found.quantised == ("expert",)
    assert found.exceptions["attention"] is DType.FP8_BLOCK


def test_parallel_dense_block_and_experts_are_told_apart() -> None:
    config = {
        **PLAIN,
        "model_type": "gemma4_text",
        "layer_types": ["full_attention"] * 4,
        "enable_moe_block": True,
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "quantization_config": {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "ignore": ["model.language_model.layers.*.mlp*", "*.self_attn*", "lm_head"],
        },
    }
    found = model_from(config, name="q")
    assert found.quantised == ("expert",)
    assert found.layers[0].ffn.d_shared == 256, "the dense block every token passes"


def test_module_names_meet_their_patterns() -> None:
    assert canonical("model.language_model.layers.3.mlp") == "layers.3.mlp"
    assert canonical("language_model.lm_head") == "lm_head"
    assert listed(("gate",), ("layers.0.mlp.gate",))
    assert not listed(("gate",), ("layers.0.mlp.gate_proj",))
    assert not listed(("model.layers.1.mlp",), ("layers.10.mlp.up_proj",))
    table = {"layers.0.ffn.experts": "NVFP4"}
    assert lookup(table, ("layers.0.ffn.experts.0.w1",)) == "NVFP4"
    assert lookup(table, ("layers.0.ffn.shared_experts.w1",)) is None
