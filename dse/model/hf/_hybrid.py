"""Models whose layers hold one block each (Nemotron-H) or were pruned one by one (Nemotron NAS)."""

from __future__ import annotations

from dataclasses import replace

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
    return [blocks[_named(name)] for name in listed]


def nemotron_h_draft(cfg: Config, recipe: Recipe) -> LayerGroup | None:
    """The layer of its multi-token prediction, an attention and an expert block together."""
    names = list(map(_named, cfg.listed("mtp_hybrid_override_pattern", "mtp_layers_block_type")))
    if not names:
        return None
    ffn: FFN = moe(cfg, recipe) if "moe" in names else NoFFN()
    attention: Attention = grouped(cfg, recipe) if "attention" in names else NoAttention()
    return LayerGroup(repeat=1, attention=attention, ffn=ffn, n_norms=len(names))


def _named(block: object) -> str:
    return _BLOCKS.get(str(block), str(block))


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
    width = cfg.count("hidden_size")
    return [
        _pruned(cfg.entry(f"block_configs.{i}", block), full, width)
        for i, block in enumerate(blocks)
    ]


def _pruned(block: Config, full: GQA, d_model: int) -> LayerGroup:
    mixer, feed = block.part("attention"), block.part("ffn")
    for part in (mixer, feed):
        for key in ("replace_with_linear", "sparsify", "window_length"):
            if part.get(key):
                raise part.error(f"{key} is not modelled")
    attention: Attention = NoAttention()
    has_mixer, has_feed = not mixer.flag("no_op"), not feed.flag("no_op")
    if has_mixer:
        kv_heads = full.n_heads // mixer.count("n_heads_in_group")
        attention = replace(full, n_kv_heads=max(1, kv_heads))
    ffn: FFN = NoFFN()
    if has_feed:
        multiple = feed.need("ffn_mult")
        if not isinstance(multiple, int | float) or multiple <= 0:
            raise feed.error(f"ffn_mult: {multiple!r} is not a multiple")
        width = int(2 * multiple * d_model / 3)
        ffn = Dense(d_ff=-(-width // _FFN_MULTIPLE) * _FFN_MULTIPLE)
    n_norms = int(has_mixer) + int(has_feed)
    return LayerGroup(repeat=1, attention=attention, ffn=ffn, n_norms=n_norms)
