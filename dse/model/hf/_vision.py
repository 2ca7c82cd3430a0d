"""Encoders beside the language model: an estimate of their parameters from `vision_config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.model.hf._config import Config
from dse.model.model import Multimodal


def encoders(cfg: Config) -> Multimodal | None:
    """The vision encoder that `vision_config` describes; None where there is none.

    Blocks of four attention projections and a two-matrix MLP, plus a projector.
    """
    vision = cfg.top.get("vision_config")
    if not isinstance(vision, Mapping):
        return None
    n_layers = _first(vision, "depth", "num_hidden_layers", "vt_num_hidden_layers")
    width = _first(vision, "hidden_size", "vt_hidden_size")
    inner = _first(vision, "intermediate_size", "vt_intermediate_size")
    if not (n_layers and width and inner):
        return None
    blocks = n_layers * (4 * width * width + 2 * width * inner)
    out = _first(vision, "out_hidden_size", "projection_dim", "text_hidden_size") or width
    merged = width * (_first(vision, "spatial_merge_size") or 1) ** 2
    return Multimodal(
        parameters=float(blocks + merged * merged + merged * out),
        note="Estimated from vision_config: blocks and projector; biases and positions left out.",
    )


def _first(vision: Mapping[str, Any], *keys: str) -> int:
    return next((vision[key] for key in keys if type(vision.get(key)) is int), 0)
