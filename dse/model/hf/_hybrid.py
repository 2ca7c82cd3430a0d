"""Models whose layers hold one block each (Nemotron-H) or were pruned one by one (Nemotron NAS)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dse.model.attention import Attention
from dse.model.attention.gqa import GQA
from dse.model.attention.none import NoAttention
from dse.model.ffn import FFN
from dse.model.ffn.dense import Dense
from dse.model.ffn.none import NoFFN
from dse.model.hf._attention import grouped, mamba
from dse.model.hf._config import Config
from dse.model.hf._ffn import dense, moe
from dse.model.hf._recipes import Recipe
from dse.model.model import LayerGroup

_BLOCKS = {"M": "mamba", "-": "mlp", "*": "attention", "E": "moe"}
_FFN_MULTIPLE = 256


def nemotron_h(cfg: Config, recipe: Recipe, n_layers: int) -> list[LayerGroup]:
    """One block a layer, by `hybrid_override_pattern` or `layers_block_type` (arXiv:2504.03624)."""
    listed = cfg.per_layer("layers_block_type", n_layers)
    if listed is None:
        listed = cfg.per_layer("hybrid_override_pattern", n_layers)
    if listed is None:
        raise cfg.error("missing key 'hybrid_override_pattern' or 'layers_block_type'")
    # A pattern without a kind of block leaves that kind's keys without meaning.
    cfg.get("attention_bias", "mlp_bias", "sliding_window", "moe_shared_expert_intermediate_size")
    cfg.get("intermediate_size", "moe_intermediate_size", "n_shared_experts", "head_dim")
    cfg.get("num_attention_heads", "num_key_value_heads")
    blocks = {name: _block(cfg, recipe, name) for name in dict.fromkeys(map(_named, listed))}
    return [blocks[_named(name)] for name in listed[:n_layers]]


def nemotron_h_draft(cfg: Config, recipe: Recipe) -> LayerGroup | None:
    """The layer of its multi-token prediction, an attention and an expert block together."""
    pattern = cfg.get("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if pattern is None:
        return None
    names = [_named(name) for name in pattern]
    ffn: FFN = moe(cfg, recipe) if "moe" in names else NoFFN()
    attention: Attention = grouped(cfg, recipe) if "attention" in names else NoAttention()
    return LayerGroup(repeat=1, attention=attention, ffn=ffn, n_norms=len(names))


def _named(block: str) -> str:
    return _BLOCKS.get(block, block)


def _block(cfg: Config, recipe: Recipe, name: str) -> LayerGroup:
    attention: Attention = NoAttention()
    ffn: FFN = NoFFN()
    if name == "mamba":
        attention = mamba(cfg)
    elif name == "attention":
        attention = grouped(cfg, recipe)
    elif name == "mlp":
        ffn = dense(cfg, recipe)
    elif name == "moe":
        ffn = moe(cfg, recipe)
    else:
        raise cfg.error(f"unknown layer kind {name!r}", "mamba, mlp, attention or moe")
    return LayerGroup(repeat=1, attention=attention, ffn=ffn, n_norms=recipe.n_norms)


def nemotron_nas(cfg: Config, recipe: Recipe, n_layers: int) -> list[LayerGroup]:
    """Layers that may lack attention or feed-forward, by `block_configs` (arXiv:2411.19146)."""
    blocks = cfg.per_layer("block_configs", n_layers) or []
    full = grouped(cfg, recipe)
    cfg.get("intermediate_size", "mlp_bias")
    return [_pruned(cfg, full, block, i) for i, block in enumerate(blocks[:n_layers])]


def _pruned(cfg: Config, full: GQA, block: dict[str, Any], layer: int) -> LayerGroup:
    mixer, feed = block["attention"], block["ffn"]
    refused = [
        key
        for part in (mixer, feed)
        for key in ("replace_with_linear", "sparsify", "window_length")
        if part.get(key)
    ]
    if refused:
        raise cfg.error(f"block_configs.{layer}: {refused[0]} is not modelled")
    attention: Attention = NoAttention()
    if not mixer.get("no_op"):
        attention = replace(full, n_kv_heads=full.n_heads // int(mixer["n_heads_in_group"]))
    ffn: FFN = NoFFN()
    if not feed.get("no_op"):
        width = int(2 * feed["ffn_mult"] * cfg.count("hidden_size") / 3)
        ffn = Dense(d_ff=-(-width // _FFN_MULTIPLE) * _FFN_MULTIPLE)
    n_norms = int(not mixer.get("no_op")) + int(not feed.get("no_op"))
    return LayerGroup(repeat=1, attention=attention, ffn=ffn, n_norms=n_norms)
