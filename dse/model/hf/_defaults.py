"""What a key means that a `config.json` leaves out, by model type.

`DEFAULTS` are the documented defaults of the configuration classes of Hugging Face transformers
(https://github.com/huggingface/transformers, src/transformers/models/*/configuration_*.py, v4.57.1;
`topk_method` of DeepSeek-V3: configuration_deepseek.py of
https://huggingface.co/deepseek-ai/DeepSeek-V3), of those keys that this reader would otherwise read
as absent. `NEEDED` are keys that make an architecture what it is, or whose class lies with the
checkpoint: without one of each tuple a file is refused by name. A type in neither defaults as
Llama does: a KV head a query head, head width from the model's, no window, no groups of experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["DEFAULTS", "NEEDED"]

_QWEN2: dict[str, Any] = {
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "max_window_layers": 28,
}
_QWEN3 = {**_QWEN2, "head_dim": 128}
_QWEN_VL = {**_QWEN2, "num_key_value_heads": 8, "max_window_layers": 80}
_QWEN3_MOE: dict[str, Any] = {
    "num_key_value_heads": 4,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
_GLM: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 128, "attention_bias": True}
_DEEPSEEK_V3: dict[str, Any] = {
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "n_group": 8,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 3,
}

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    "mimo": _QWEN2,
    "qwen2": _QWEN2,
    "qwen2_moe": {
        **_QWEN2,
        "num_key_value_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
    },
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_text": {"num_key_value_heads": 32, "head_dim": 128},
    "qwen3_vl_moe_text": {
        "num_key_value_heads": 16,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
    },
    "qwen3_next": {
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
    "qwen2_vl": _QWEN_VL,
    "qwen2_vl_text": _QWEN_VL,
    "qwen2_5_vl": _QWEN_VL,
    "qwen2_5_vl_text": _QWEN_VL,
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "gpt_oss": {
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "attention_bias": True,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
    },
    "llama4_text": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "use_qk_norm": True,
    },
    "glm": _GLM,
    "glm4": _GLM,
    "glm4_moe": {
        "num_key_value_heads": 8,
        "n_routed_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "granitemoe": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "granitemoehybrid": {
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "shared_intermediate_size": 1024,
    },
    "cohere2": {"sliding_window": 4096},
    "smollm3": {"num_key_value_heads": 4, "use_sliding_window": False},
    "seed_oss": {"num_key_value_heads": 8, "head_dim": 128, "attention_bias": True},
    "exaone4": {"num_key_value_heads": 32, "sliding_window": 4096},
    "ernie4_5": {"num_key_value_heads": 2, "head_dim": 128},
    "ernie4_5_moe": {
        "num_key_value_heads": 4,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2,
        "moe_layer_start_index": 1,
    },
    "olmo3": {"sliding_window": 4096},
    "olmoe": {"num_experts": 64, "num_experts_per_tok": 8},
    "dots1": {
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "use_sliding_window": True,
        "max_window_layers": 62,
    },
    "starcoder2": {"num_key_value_heads": 2},
    # q_lora_rank is left out: DeepSeek-V2-Lite, of the same type, has none.
    "deepseek_v2": {
        "n_routed_experts": 64,
        "moe_intermediate_size": 1407,
        "n_shared_experts": 2,
        "topk_method": "greedy",
    },
    "deepseek_v3": _DEEPSEEK_V3,
    # Kimi-K2 is read by DeepSeek-V3's class (auto_map), as engines read DeepSeek-V3.2.
    "kimi_k2": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V3,
}

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
_LATENT = ("kv_lora_rank",)
_KV_HEADS = ("num_key_value_heads", "swa_num_key_value_heads")

NEEDED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "deepseek_v2": (_LATENT,),
    "deepseek_v3": (_LATENT,),
    "deepseek_v32": (_LATENT, ("index_topk",)),
    "deepseek_v4": (("compress_ratios",), _EXPERTS),
    "kimi_k2": (_LATENT,),
    "kimi_linear": (("linear_attn_config",),),
    "glm_moe_dsa": (_LATENT, ("index_topk",), _EXPERTS, ("n_group",), ("n_shared_experts",)),
    "minimax_m2": (_KV_HEADS, ("head_dim",), _EXPERTS),
    "minimax_m3": (("sparse_attention_config",), _KV_HEADS, ("head_dim",), _EXPERTS),
    "mimo_v2_flash": (_KV_HEADS, ("hybrid_layer_pattern",), _EXPERTS, ("n_group",)),
    "bailing_moe_v2": (_KV_HEADS, _EXPERTS, ("n_group",), ("topk_group",)),
    "ministral3": (_KV_HEADS, ("head_dim",)),
    "step3p7": (_KV_HEADS, ("layer_types",)),
    "nemotron_h": (("layers_block_type", "hybrid_override_pattern"),),
    "granitemoehybrid": (("layer_types", "layers_block_type"),),
    "qwen3_5_text": (_KV_HEADS, ("layer_types", "full_attention_interval")),
    "qwen3_5_moe_text": (_KV_HEADS, ("layer_types", "full_attention_interval"), _EXPERTS),
    "gemma4_text": (_KV_HEADS, ("layer_types",)),
    "dots1": (_EXPERTS, ("num_experts_per_tok",)),
}
