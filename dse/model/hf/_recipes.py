"""What a model type does that its config does not say: biases, norms, ties, default windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The facts of one architecture that live in its modelling code.

    `qkv_bias` and `output_bias` None follow the config's `attention_bias`. `n_norms` counts the
    vectors of d_model a layer: two RMS norms are 2, two layer norms with bias are 4. `window_every`
    is the default pattern: of this many layers the last attends to all. Values of the configuration
    class, which files leave out, are in `_defaults`.
    """

    qkv_bias: bool | None = None
    output_bias: bool | None = None
    qk_norm: bool | None = None
    sinks: bool = False
    n_norms: int = 2
    gated: bool = True
    ffn_bias: bool = False
    is_tied: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    n_shared: int = 0
    shared_gate: bool = False
    output_gate: bool = False
    head_bias: bool = False
    position_offset: int | None = None
    window_every: int | None = None
    chunk_every: int | None = None
    first_window: Literal["even", "all"] = "all"


PLAIN = Recipe()
_QWEN2 = Recipe(qkv_bias=True, output_bias=False)
_QWEN3 = Recipe(qk_norm=True)
_LAYER_NORM = Recipe(
    qkv_bias=True, output_bias=True, n_norms=4, gated=False, ffn_bias=True, is_tied=True
)

RECIPES = {
    "llama": PLAIN,
    "mistral": PLAIN,
    "ministral3": PLAIN,
    "mixtral": PLAIN,
    "phi3": PLAIN,
    "internlm2": PLAIN,
    "baichuan": PLAIN,
    "olmo2": Recipe(qk_norm=True),
    "mimo": Recipe(output_bias=False),
    "mimo_v2_flash": PLAIN,
    "step3p7": PLAIN,
    "qwen2": _QWEN2,
    "qwen2_moe": Recipe(qkv_bias=True, output_bias=False, shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "qwen3_next": Recipe(qk_norm=True, output_gate=True, shared_gate=True),
    "qwen3_5_text": Recipe(qk_norm=True, shared_gate=True),
    "qwen3_5_moe_text": Recipe(qk_norm=True, shared_gate=True),
    "gemma2": Recipe(n_norms=4, is_tied=True, first_window="even"),
    "gemma": Recipe(is_tied=True),
    "gemma3_text": Recipe(n_norms=4, qk_norm=True, is_tied=True, window_every=6),
    "gemma4_text": Recipe(n_norms=4, qk_norm=True, is_tied=True),
    "gpt_oss": Recipe(sinks=True, router_bias=True, expert_bias=True, first_window="even"),
    "llama4_text": Recipe(n_shared=1, chunk_every=4),
    "glm": Recipe(output_bias=False),
    "glm4": Recipe(output_bias=False, n_norms=4),
    "glm4_moe": Recipe(output_bias=False),
    "granite": PLAIN,
    "granitemoe": PLAIN,
    "granitemoehybrid": PLAIN,
    "cohere": Recipe(n_norms=1, is_tied=True),
    "cohere2": Recipe(n_norms=1, is_tied=True, window_every=4),
    "smollm3": Recipe(is_tied=True),
    "seed_oss": Recipe(output_bias=False),
    "exaone4": Recipe(qk_norm=True, window_every=4),
    "ernie4_5": Recipe(is_tied=True),
    "ernie4_5_moe": Recipe(is_tied=True),
    "olmo3": Recipe(qk_norm=True, window_every=4),
    "olmoe": Recipe(qk_norm=True),
    "dots1": Recipe(qk_norm=True),
    "bailing_moe_v2": PLAIN,
    "arcee": Recipe(gated=False),
    "nemotron": Recipe(gated=False, n_norms=4),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "gpt_neox": Recipe(qkv_bias=True, output_bias=True, n_norms=4, gated=False, ffn_bias=True),
    "gpt2": Recipe(
        qkv_bias=True,
        output_bias=True,
        n_norms=4,
        gated=False,
        ffn_bias=True,
        is_tied=True,
        position_offset=0,
    ),
    "minimax_m2": PLAIN,
    "minimax_m3": PLAIN,
    "deepseek_v2": PLAIN,
    "deepseek_v3": PLAIN,
    "deepseek_v32": PLAIN,
    "deepseek_v4": PLAIN,
    "deepseek_ref": PLAIN,
    "glm_moe_dsa": PLAIN,
    "kimi_k2": PLAIN,
    "kimi_linear": PLAIN,
    "nemotron_h": Recipe(n_norms=1, gated=False),
    "nemotron-nas": PLAIN,
    "starcoder2": _LAYER_NORM,
    "opt": Recipe(
        qkv_bias=True,
        output_bias=True,
        n_norms=4,
        gated=False,
        ffn_bias=True,
        is_tied=True,
        position_offset=2,
    ),
    # One layer norm feeds attention and feed-forward in parallel (phi-2).
    "phi-msft": Recipe(
        qkv_bias=True, output_bias=True, n_norms=2, gated=False, ffn_bias=True, head_bias=True
    ),
    "phi": Recipe(
        qkv_bias=True, output_bias=True, n_norms=2, gated=False, ffn_bias=True, head_bias=True
    ),
}
