"""Small Hugging Face configs: each has the fewest keys that its architecture needs."""

from typing import Any

PLAIN: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

LATENT: dict[str, Any] = {
    **PLAIN,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
}

HYBRID: dict[str, Any] = {
    **{key: value for key, value in PLAIN.items() if key != "num_hidden_layers"},
    "model_type": "nemotron_h",
    "conv_kernel": 4,
    "mamba_num_heads": 16,
    "mamba_head_dim": 8,
    "n_groups": 2,
    "ssm_state_size": 16,
}


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The config without some keys."""
    return {key: value for key, value in config.items() if key not in keys}
