"""Which kind of attention each layer has, from the many ways that configs say it."""

from __future__ import annotations

from typing import Literal

from dse.model.hf._config import Config
from dse.model.hf._recipes import Recipe

MOST_LAYERS = 1000
Kind = Literal["full", "sliding", "linear", "mamba"]
_LAYER_TYPES: dict[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
    "mamba": "mamba",
}


def n_layers_of(cfg: Config) -> int:
    """The number of layers; hybrids may state only a list or string of their kinds."""
    keys = ("num_hidden_layers", "n_layer", "num_layers")
    lists = ("layers_block_type", "hybrid_override_pattern", "layer_types", "block_configs")
    found = cfg.count(*keys) if cfg.has(*keys) or not cfg.has(*lists) else len(cfg.listed(*lists))
    if not 1 <= found <= MOST_LAYERS:
        raise cfg.error(f"num_hidden_layers: {found} is not from 1 to {MOST_LAYERS}")
    return found


def window_of(cfg: Config) -> int | None:
    """Tokens of the sliding window or local chunk; None where none is in use.

    A window that is switched off, or is as long as the context, is none (Qwen2, Phi-4-mini).
    """
    chunk = cfg.count("attention_chunk_size", default=0)
    found = cfg.count("sliding_window", "sliding_window_size", default=0) or chunk
    if not cfg.flag("use_sliding_window", default=True):
        return None
    limit = cfg.count("max_position_embeddings", "n_positions", default=found)
    return found if 0 < found < limit else None


def kinds_of(cfg: Config, recipe: Recipe, n_layers: int) -> list[Kind]:
    """The kind of each layer's attention."""
    window = window_of(cfg)
    listed = cfg.per_layer("layer_types", n_layers)
    if listed is not None:
        unknown = sorted({str(kind) for kind in listed} - _LAYER_TYPES.keys())
        if unknown:
            raise cfg.error(f"layer_types: unknown kind {unknown[0]!r}", ", ".join(_LAYER_TYPES))
        found = [_LAYER_TYPES[str(kind)] for kind in listed]
        cfg.get("full_attention_interval", "sliding_window_pattern", "_sliding_window_pattern")
    elif (marks := cfg.per_layer("hybrid_layer_pattern", n_layers)) is not None:
        found = ["sliding" if mark else "full" for mark in marks]
    elif cfg.has("full_attention_interval"):
        every = cfg.count("full_attention_interval")
        found = ["full" if (i + 1) % every == 0 else "linear" for i in range(n_layers)]
    else:
        found = [_by_default(cfg, recipe, i, window) for i in range(n_layers)]
    return [kind if window or kind != "sliding" else "full" for kind in found]


def _by_default(cfg: Config, recipe: Recipe, layer: int, window: int | None) -> Kind:
    every = cfg.count("sliding_window_pattern", "_sliding_window_pattern", default=0)
    every = every or recipe.window_every or recipe.chunk_every or 0
    if window is None:
        return "full"
    if every:
        return "full" if (layer + 1) % every == 0 else "sliding"
    if recipe.first_window == "even":
        return "sliding" if layer % 2 == 0 else "full"
    if cfg.flag("use_sliding_window"):
        first = cfg.count("max_window_layers", default=0)
        return "sliding" if layer >= first else "full"
    return "sliding"
