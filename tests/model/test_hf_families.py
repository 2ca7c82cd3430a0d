"""Families beyond the measured data: the shape of a public config, and the total that is published.

Each row holds the keys that matter of the checkpoint's config.json at https://huggingface.co.
"""

from typing import Any

import pytest

from dse.base.errors import UserError
from dse.hardware import DType
from dse.model.ffn.moe import MoE
from dse.model.hf import model_from
from dse.model.shard import WHOLE


def shape(kind: str, layers: int, width: int, heads: int, kv: int, ffn: int, **keys: Any) -> dict:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
        **keys,
    }


GRANITE_HYBRID = shape(
    "granitemoehybrid", 40, 4096, 32, 8, 768, vocab_size=100352, tie_word_embeddings=True
) | {
    "layer_types": [*["mamba"] * 9, "attention"] * 4,
    "mamba_n_heads": 128,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "num_local_experts": 72,
    "num_experts_per_tok": 10,
    "shared_intermediate_size": 1536,
    "position_embedding_type": "nope",
    "residual_multiplier": 0.22,
}
ERNIE = shape("ernie4_5_moe", 28, 2560, 20, 4, 12288, vocab_size=103424, head_dim=128) | {
    "tie_word_embeddings": True,
    "moe_num_experts": 64,
    "moe_k": 6,
    "moe_num_shared_experts": 2,
    "moe_intermediate_size": 1536,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": 27,
    "moe_layer_interval": 1,
}
GEMMA3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
}
QWEN25_VL = shape("qwen2_5_vl", 28, 3584, 28, 4, 18944, vocab_size=152064) | {
    "use_sliding_window": False,
    "sliding_window": 32768,
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420},
}
GLM4 = shape("glm4", 40, 4096, 32, 2, 13696, vocab_size=151552, head_dim=128)
SEED = shape("seed_oss", 64, 5120, 80, 8, 27648, vocab_size=155136, head_dim=128)


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (shape("granite", 40, 4096, 32, 8, 12800, vocab_size=49155) | {"tie_word_embeddings": True},
         8.17),
        (GRANITE_HYBRID, 32.2),
        (ERNIE, 21.8),
        (GEMMA3_4B, 3.88),
        (QWEN25_VL, 7.615),
        (GLM4 | {"attention_bias": True}, 9.40),
        (SEED | {"attention_bias": True, "attention_out_bias": False}, 36.15),
        (shape("smollm3", 36, 2048, 16, 4, 11008, vocab_size=128256, tie_word_embeddings=True),
         3.08),
        (shape("gpt_neox", 44, 6144, 64, 64, 24576, vocab_size=50432), 20.55),
        (shape("cohere", 40, 8192, 64, 64, 22528, vocab_size=256000, tie_word_embeddings=True),
         34.98),
        (shape("qwen2_moe", 28, 3584, 28, 4, 18944, vocab_size=151936) | {
            "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2560,
            "shared_expert_intermediate_size": 20480}, 57.41),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else None,
)  # fmt: skip
def test_published_totals(config: dict[str, Any], billions: float) -> None:
    found = model_from(config, name="family")
    assert found.parameters() / 1e9 == pytest.approx(billions, rel=0.005)


def test_defaults_of_the_configuration_class() -> None:
    found = model_from(GEMMA3_4B, name="gemma-3-4b")
    assert (found.vocab_size, found.max_context_tokens) == (262208, 131072)
    assert found.tied_embeddings
    kinds = [layer.attention.kind for layer in found.expanded()]
    assert kinds.count("gqa") == 5
    full = found.layers[1].attention
    assert (full.n_heads, full.n_kv_heads, full.d_head) == (8, 4, 256)


def test_mamba_beside_experts() -> None:
    found = model_from(GRANITE_HYBRID, name="granite")
    layers = list(found.expanded())
    per_token = sum(layer.attention.kv_bytes_per_token(WHOLE, DType.BF16) for layer in layers)
    assert per_token == 4 * 2 * 8 * 128 * 2
    assert all(layer.ffn.is_moe for layer in layers)


@pytest.mark.parametrize(
    ("keys", "groups"),
    [({}, (8, 4)), ({"topk_method": "noaux_tc"}, (8, 4)), ({"topk_method": "greedy"}, (1, 1))],
)
def test_groups_of_experts_that_a_token_is_limited_to(
    keys: dict[str, str], groups: tuple[int, int]
) -> None:
    """`greedy` is DeepSeek-V2's router without a limit, whatever its groups."""
    config = ERNIE | {"n_group": 8, "topk_group": 4} | keys
    experts = model_from(config, name="grouped").layers[-1].ffn
    assert (experts.n_groups, experts.top_groups) == groups


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"n_group": 8}, "missing key 'topk_group'"),
        ({"n_group": 7, "topk_group": 3}, "experts in 7 groups"),
        ({"n_group": 8, "topk_group": 9}, "9 of 8 groups"),
    ],
)
def test_groups_that_no_router_could_choose_from_are_refused(
    keys: dict[str, int], fault: str
) -> None:
    with pytest.raises(UserError, match=fault):
        model_from(ERNIE | keys, name="grouped")


@pytest.mark.parametrize("groups", [(0, 4), (8, 0), (-8, 4), (7, 3), (8, 9), (64, 4)])
def test_a_layer_has_groups_that_hold_what_a_token_takes(groups: tuple[int, int]) -> None:
    n_groups, top_groups = groups
    with pytest.raises(UserError, match="groups"):
        MoE(n_experts=64, top_k=8, d_expert=8, n_groups=n_groups, top_groups=top_groups)
