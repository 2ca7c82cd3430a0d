"""From the files of a checkpoint to a `Model`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from dse.hardware.dtype import DType
from dse.model.attention.compressed import Compressed
from dse.model.attention.linear import Linear
from dse.model.attention.none import NoAttention
from dse.model.attention.sliding import Sliding
from dse.model.hf._attention import attentions
from dse.model.hf._config import Config, read_json
from dse.model.hf._defaults import DEFAULTS, NEEDED
from dse.model.hf._ffn import ffns
from dse.model.hf._hybrid import nemotron_h, nemotron_h_draft, nemotron_nas
from dse.model.hf._pattern import n_layers_of
from dse.model.hf._quantisation import Scheme, Stored, scheme_of, stored
from dse.model.hf._recipes import PLAIN, RECIPES, Recipe
from dse.model.hf._vision import encoders
from dse.model.model import LayerGroup, Model, Speculative
from dse.model.shard import WHOLE
from dse.model.tensor import Tensor

_DTYPES = {
    "bfloat16": DType.BF16,
    "float16": DType.FP16,
    # Engines load a float32 checkpoint in 16 bits unless told otherwise.
    "float32": DType.BF16,
}


def load(path: str | Path, *, ignore: Iterable[str] = (), source: str = "") -> Model:
    """The model that a Hugging Face `config.json` describes.

    `hf_quant_config.json` beside it (or `NAME_hf_quant.json` beside `NAME.json`) is read too.
    `ignore` names keys that are known to change nothing. A `UserError` names every key that is
    missing, unknown or not modelled.
    """
    file = Path(path)
    data = read_json(file)
    beside = (file.parent / "hf_quant_config.json", file.with_name(f"{file.stem}_hf_quant.json"))
    companion = next((read_json(each) for each in beside if each.is_file()), None)
    stem = file.parent.name if file.stem == "config" else file.stem
    return model_from(
        data,
        name=stem,
        companion=companion,
        ignore=ignore,
        source=source or f"{file.name} (Hugging Face config)",
        place=str(file),
    )


def model_from(
    data: Mapping[str, Any],
    *,
    name: str,
    companion: Mapping[str, Any] | None = None,
    ignore: Iterable[str] = (),
    source: str = "Hugging Face config",
    place: str = "config.json",
) -> Model:
    """The model that the object of a `config.json` describes; `companion` is hf_quant_config's."""
    cfg = Config(data, place)
    kind = _kind(cfg)
    # An unknown type whose every key is known is a plain decoder; an unknown key stops it later.
    recipe = RECIPES.get(kind, PLAIN)
    cfg.defaults = DEFAULTS.get(kind, {})
    for keys in NEEDED.get(kind, ()):
        cfg.require_stated(kind, keys)
    d_model = cfg.count("hidden_size", "n_embd")
    layers = _layers(cfg, recipe)
    draft = _speculative(cfg, recipe, layers)
    scheme = scheme_of(cfg, companion)
    shape: dict[str, Any] = {
        "name": name,
        "d_model": d_model,
        "vocab_size": cfg.count("vocab_size", "padded_vocab_size"),
        "layers": _run_lengths(layers),
        "tied_embeddings": cfg.flag("tie_word_embeddings", default=recipe.is_tied),
        "max_context_tokens": cfg.count(
            "max_position_embeddings", "n_positions", "model_max_length", "seq_length"
        ),
        "source": source,
        "speculative": draft,
        "multimodal": encoders(cfg),
        "notes": f"KV cache calibrated for {scheme.kv_cache}." if scheme.kv_cache else "",
    }
    cfg.get("model_max_length", "lm_head_bias")
    shape |= _outside(cfg, recipe, shape)
    model = Model(**shape)
    saved = _stored(cfg, scheme, layers, model)
    cfg.refuse_unread(ignore)
    return replace(
        model,
        checkpoint=saved.checkpoint,
        quantised=saved.quantised,
        exceptions=saved.exceptions,
        checkpoint_bytes=saved.checkpoint_bytes,
    )


def _kind(cfg: Config) -> str:
    kind = cfg.text.get("model_type") or cfg.top.get("model_type")
    return str(kind).removesuffix("_vl") if str(kind) not in RECIPES else str(kind)


def _layers(cfg: Config, recipe: Recipe) -> list[LayerGroup]:
    n_layers = n_layers_of(cfg)
    if cfg.has("hybrid_override_pattern", "layers_block_type"):
        return nemotron_h(cfg, recipe, n_layers)
    if cfg.has("block_configs"):
        return nemotron_nas(cfg, recipe, n_layers)
    _refuse_unmodelled(cfg)
    if any(kind != 1 for kind in cfg.listed("attn_type_list")):
        raise cfg.error("attn_type_list: lightning attention is not modelled")
    pairs = zip(attentions(cfg, recipe, n_layers), ffns(cfg, recipe, n_layers), strict=True)
    return [
        LayerGroup(repeat=1, attention=attention, ffn=ffn, n_norms=recipe.n_norms)
        for attention, ffn in pairs
    ]


def _refuse_unmodelled(cfg: Config) -> None:
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp"):
        if cfg.get(key):
            raise cfg.error(f"{key} {cfg.get(key)!r} is not modelled")
    width = cfg.count("hidden_size", "n_embd")
    if cfg.get("word_embed_proj_dim", default=width) != width:
        raise cfg.error("word_embed_proj_dim: an embedding of another width is not modelled")


def _speculative(cfg: Config, recipe: Recipe, layers: list[LayerGroup]) -> Speculative | None:
    keys = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
    count = cfg.count(*keys, default=0)
    cfg.get("use_mtp", "mtp_transformer_layers", "mtp_use_dedicated_embeddings")
    cfg.get("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if not count or not cfg.flag("use_mtp", default=True):
        return None
    own = (
        nemotron_h_draft(cfg, recipe)
        if cfg.has("hybrid_override_pattern") or cfg.has("layers_block_type")
        else None
    )
    return Speculative(n_layers=count, layer=own or _draft_like(layers))


def _draft_like(layers: list[LayerGroup]) -> LayerGroup:
    """The last layer that attends to everything, as modules of multi-token prediction do."""
    partial = (Linear, NoAttention, Sliding)
    whole = [group for group in layers if not isinstance(group.attention, partial)]
    last = (whole or layers)[-1]
    if isinstance(last.attention, Compressed):
        near = replace(last.attention, ratio=0, n_index_heads=0, d_index=0, top_k_tokens=0)
        return replace(last, attention=near)
    return last


def _outside(cfg: Config, recipe: Recipe, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters beside the layers: learned positions and biases of the head."""
    positions = 0
    if recipe.position_offset is not None:
        positions = int(shape["max_context_tokens"]) + recipe.position_offset
    extra = float(shape["vocab_size"]) if recipe.head_bias else 0.0
    return {"learned_positions": positions, "extra_parameters": extra}


def _stored(cfg: Config, scheme: Scheme, layers: list[LayerGroup], model: Model) -> Stored:
    dtype = str(cfg.get("torch_dtype", "dtype", default="bfloat16"))
    if dtype not in _DTYPES:
        raise cfg.error(f"torch_dtype: unknown dtype {dtype!r}", ", ".join(_DTYPES))
    outside: tuple[Tensor, ...] = model.embedding_tensors()
    return stored(
        scheme,
        layers,
        outside,
        model.d_model,
        _DTYPES[dtype],
        beside=_beside(model),
        is_parallel=cfg.flag("enable_moe_block"),
    )


def _beside(model: Model) -> tuple[Tensor, ...]:
    """What the files hold beside the language model: drafts with their projection, and encoders."""
    found: list[Tensor] = []
    if model.speculative is not None:
        count, d_model = model.speculative.n_layers, model.d_model
        drafted = model.speculative.layer.tensors(d_model, WHOLE)
        found += [Tensor(t.name, t.cls, t.total_elements, count) for t in drafted]
        found.append(Tensor("eh_proj", "other", 2.0 * d_model**2, count))
    if model.multimodal is not None:
        found.append(Tensor("encoders", "other", model.multimodal.parameters))
    return tuple(found)


def _run_lengths(layers: list[LayerGroup]) -> tuple[LayerGroup, ...]:
    return tuple(replace(group, repeat=sum(1 for _ in equal)) for group, equal in groupby(layers))
