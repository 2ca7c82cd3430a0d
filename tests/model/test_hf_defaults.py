"""A key that a config.json leaves out has its class's documented default, or is refused by name."""

from typing import Any

import pytest

from dse.base.errors import UserError
from dse.model import Model
from dse.model.hf import model_from
from dse.model.hf._defaults import DEFAULTS, NEEDED
from dse.model.hf._recipes import RECIPES
from tests.model.configs import LATENT, PLAIN, without

GROUPED: dict[str, Any] = {**LATENT, "n_routed_experts": 64, "num_experts_per_tok": 4}


def model(config: dict[str, Any]) -> Model:
    return model_from(config, name="default")


def attention(config: dict[str, Any], layer: int = -1) -> Any:
    return list(model(config).expanded())[layer].attention


def test_deepseek_v3_limits_its_groups_without_saying_so() -> None:
    """DeepseekV3Config: n_group 8, topk_group 4, a correction bias, one shared expert, MLA's q."""
    silent = without(GROUPED, "n_group")
    for key in ("topk_group", "topk_method", "n_shared_experts", "first_k_dense_replace"):
        silent = without(silent, key)
    found = model(silent)
    experts = found.layers[-1].ffn
    assert (experts.n_groups, experts.top_groups) == (8, 4)
    assert (experts.n_shared, experts.router_bias) == (1, True)
    assert [layer.ffn.is_moe for layer in found.expanded()] == [False, False, False, True]
    assert attention(without(GROUPED, "q_lora_rank")).q_lora_rank == 1536


def test_a_null_is_an_answer_and_no_gap() -> None:
    assert attention({**GROUPED, "q_lora_rank": None}).q_lora_rank is None
    windowed = {**PLAIN, "model_type": "mistral", "max_position_embeddings": 32768}
    assert attention(windowed).kind == "sliding"
    assert attention({**windowed, "sliding_window": None}).kind == "gqa"


def test_deepseek_v2_is_greedy_and_has_no_groups_without_saying_so() -> None:
    silent = without(without(GROUPED, "n_group"), "topk_group")
    experts = model({**silent, "model_type": "deepseek_v2"}).layers[-1].ffn
    assert (experts.n_groups, experts.top_groups) == (1, 1)


def test_groups_are_read_under_kimis_name() -> None:
    config = {**without(GROUPED, "n_group"), "num_expert_group": 8, "topk_group": 4}
    experts = model({**config, "model_type": "brand_new"}).layers[-1].ffn
    assert (experts.n_groups, experts.top_groups) == (8, 4)


@pytest.mark.parametrize(
    ("kind", "heads"), [("llama", 8), ("mistral", 8), ("smollm3", 4), ("starcoder2", 2)]
)
def test_kv_heads_are_those_of_the_class(kind: str, heads: int) -> None:
    """Only where the class says None has each query head one of its own."""
    config = {**without(PLAIN, "num_key_value_heads"), "model_type": kind}
    assert attention(config).n_kv_heads == heads


def test_a_window_is_in_use_only_where_the_class_switches_it_on() -> None:
    qwen = {**PLAIN, "model_type": "qwen2", "sliding_window": 1024}
    assert attention(qwen).kind == "gqa"
    assert attention({**qwen, "use_sliding_window": True, "max_window_layers": 2}, 3).window_tokens


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [
        ("gpt_oss", ["sliding", "gqa", "sliding", "gqa"]),
        ("olmo3", ["sliding", "sliding", "sliding", "gqa"]),
        ("exaone4", ["sliding", "sliding", "sliding", "gqa"]),
    ],
)
def test_layers_alternate_as_the_class_says(kind: str, kinds: list[str]) -> None:
    config = {**PLAIN, "model_type": kind, "max_position_embeddings": 8192, "head_dim": 8}
    found = model({**config, "num_local_experts": 4, "num_experts_per_tok": 2})
    assert [layer.attention.kind for layer in found.expanded()] == kinds


def test_a_width_of_its_own_does_not_fall_back_on_another() -> None:
    """Qwen3MoeConfig: experts of 768; Llama4TextConfig: dense layers of 16384."""
    config = {**PLAIN, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2}
    assert model(config).layers[0].ffn.d_expert == 768
    llama = {**PLAIN, "model_type": "llama4_text", "interleave_moe_layer_step": 2}
    found = model({**llama, "num_local_experts": 4, "num_experts_per_tok": 1}).layers
    assert [layer.ffn.d_ff for layer in found if not layer.ffn.is_moe] == [16384, 16384]


@pytest.mark.parametrize("kind", NEEDED)
def test_what_makes_an_architecture_is_never_guessed(kind: str) -> None:
    with pytest.raises(UserError, match=f"which model type {kind} must state"):
        model({"hidden_size": 64, "model_type": kind})


def test_every_type_with_defaults_is_one_that_is_known() -> None:
    assert {*DEFAULTS, *NEEDED} <= RECIPES.keys()
