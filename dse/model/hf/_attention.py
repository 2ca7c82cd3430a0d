"""The attention of each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from dse.hardware.dtype import DType
from dse.model.attention import Attention
from dse.model.attention.block_sparse import BlockSparse
from dse.model.attention.compressed import Compressed
from dse.model.attention.gqa import GQA
from dse.model.attention.linear import Linear
from dse.model.attention.mla import MLA
from dse.model.attention.sliding import Sliding
from dse.model.attention.sparse import DSA
from dse.model.hf._config import Config
from dse.model.hf._pattern import kinds_of, window_of
from dse.model.hf._recipes import Recipe

_WHOLE_LATENT = {"full_attention", "deepseek_sparse_attention"}
_STATE = {"float32": DType.FP32, "bfloat16": DType.BF16, "float16": DType.FP16}


def attentions(cfg: Config, recipe: Recipe, n_layers: int) -> list[Attention]:
    """The attention of every layer, in order."""
    for probe, build in _MIXERS:
        if cfg.has(probe):
            return build(cfg, recipe, n_layers)
    return _grouped(cfg, recipe, n_layers)


def grouped(cfg: Config, recipe: Recipe, kind: str = "full") -> GQA:
    """Multi-head or grouped-query attention of one kind of layer."""
    is_windowed = kind == "sliding"
    prefix = "swa_" if is_windowed else "global_"
    n_heads = _sized(cfg, prefix, "num_attention_heads", "n_head")
    shape: dict[str, Any] = {
        "n_heads": n_heads,
        "n_kv_heads": _kv_heads(cfg, is_windowed, n_heads),
        "d_head": _head_width(cfg, prefix, n_heads),
        "d_v": _sized(cfg, prefix, "v_head_dim", default=0) or None,
        "bias": _says(
            cfg, recipe.qkv_bias, "attention_bias", "qkv_bias", "use_qkv_bias", "use_bias", "bias"
        ),
        "output_bias": _says(cfg, recipe.output_bias, "attention_bias", "use_bias", "bias"),
        "qk_norm": _says(cfg, recipe.qk_norm, "use_qk_norm"),
        "output_gate": _says(
            cfg, recipe.output_gate or None, "attn_output_gate", "attention_output_gate"
        ),
        "sinks": recipe.sinks or _has_sink(cfg, is_windowed),
        "keys_are_values": not is_windowed and cfg.flag("attention_k_eq_v"),
    }
    if n_heads % shape["n_kv_heads"]:
        heads = f"heads {n_heads} % KV heads {shape['n_kv_heads']}"
        raise cfg.error(f"num_key_value_heads: {heads} = {n_heads % shape['n_kv_heads']}")
    cfg.get("qk_norm_type", "attention_out_bias", "attention_output_bias")
    if is_windowed:
        window = window_of(cfg)
        if window is None:
            raise cfg.error("missing key 'sliding_window' although layers slide")
        return Sliding(window_tokens=window, **shape)
    return GQA(**shape)


def _grouped(cfg: Config, recipe: Recipe, n_layers: int) -> list[Attention]:
    cfg.get("num_global_key_value_heads", "swa_num_key_value_heads")
    found: dict[str, Attention] = {}
    kinds = kinds_of(cfg, recipe, n_layers)
    for kind in set(kinds):
        recurrent = {"linear": _gated_delta, "mamba": mamba}.get(kind)
        found[kind] = recurrent(cfg) if recurrent else grouped(cfg, recipe, kind)
    return [found[kind] for kind in kinds]


def _sized(cfg: Config, prefix: str, *keys: str, default: int | None = None) -> int:
    """A width that one kind of layer may have of its own (MiMo `swa_`, Gemma 4 `global_`)."""
    return cfg.count(f"{prefix}{keys[0]}", *keys, default=default)


def _kv_heads(cfg: Config, is_windowed: bool, n_heads: int) -> int:
    own = "swa_num_key_value_heads" if is_windowed else "num_global_key_value_heads"
    return cfg.count(own, "num_key_value_heads", "n_head_kv", default=n_heads)


def _head_width(cfg: Config, prefix: str, n_heads: int) -> int:
    keys = (f"{prefix}head_dim", "head_dim", "attention_head_dim")
    if cfg.has(*keys):
        return cfg.count(*keys)
    d_model = cfg.count("hidden_size", "n_embd")
    if d_model % n_heads:
        raise cfg.error(f"missing key 'head_dim' (hidden_size {d_model} % heads {n_heads} != 0)")
    return d_model // n_heads


def _says(cfg: Config, recipe: bool | None, *keys: str) -> bool:
    stated = cfg.flag(*keys)
    return stated if recipe is None else recipe


def _has_sink(cfg: Config, is_windowed: bool) -> bool:
    windowed, full = (
        cfg.flag("add_swa_attention_sink_bias"),
        cfg.flag("add_full_attention_sink_bias"),
    )
    return windowed if is_windowed else full


def _gated_delta(cfg: Config) -> Linear:
    """Gated delta network (Qwen3-Next, Qwen3.5; arXiv:2412.06464)."""
    state = str(cfg.get("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="bfloat16"))
    return Linear(
        variant="gdn",
        n_heads=cfg.count("linear_num_value_heads"),
        d_head=cfg.count("linear_value_head_dim"),
        n_groups=cfg.count("linear_num_key_heads"),
        d_state=cfg.count("linear_key_head_dim"),
        d_conv=cfg.count("linear_conv_kernel_dim"),
        state_dtype=_state(cfg, state),
    )


def mamba(cfg: Config) -> Linear:
    """Mamba-2 mixer (Nemotron-H; arXiv:2405.21060)."""
    cfg.get("use_conv_bias", "mamba_conv_bias", "mamba_proj_bias", "use_bias", "mamba_expand")
    return Linear(
        variant="mamba2",
        n_heads=cfg.count("mamba_num_heads", "mamba_n_heads"),
        d_head=cfg.count("mamba_head_dim", "mamba_d_head"),
        n_groups=cfg.count("n_groups", "mamba_n_groups"),
        d_state=cfg.count("ssm_state_size", "mamba_d_state"),
        d_conv=cfg.count("conv_kernel", "mamba_d_conv"),
        state_dtype=_state(cfg, str(cfg.get("mamba_ssm_cache_dtype", default="bfloat16"))),
    )


def _state(cfg: Config, name: str) -> DType:
    if name not in _STATE:
        raise cfg.error(f"unknown state dtype {name!r}", ", ".join(_STATE))
    return _STATE[name]


def _latent(cfg: Config, _recipe: Recipe, n_layers: int) -> list[Attention]:
    """MLA, with an indexer where `index_topk` is set; `head_dim` and KV heads mean nothing here."""
    cfg.get("head_dim", "qk_head_dim", "num_key_value_heads", "attention_bias")
    unknown = sorted({str(kind) for kind in cfg.listed("layer_types")} - _WHOLE_LATENT)
    if unknown:
        raise cfg.error(f"layer_types: unknown kind {unknown[0]!r} beside latent attention")
    shape: dict[str, Any] = {
        "n_heads": cfg.count("num_attention_heads"),
        "q_lora_rank": cfg.count("q_lora_rank", default=0) or None,
        "kv_lora_rank": cfg.count("kv_lora_rank"),
        "d_nope": cfg.count("qk_nope_head_dim"),
        "d_rope": cfg.count("qk_rope_head_dim"),
        "d_v": cfg.count("v_head_dim"),
        "output_gate": cfg.flag("mla_use_output_gate"),
    }
    if not cfg.has("index_topk"):
        return [MLA(**shape)] * n_layers
    shape |= {
        "n_index_heads": cfg.count("index_n_heads"),
        "d_index": cfg.count("index_head_dim"),
        "top_k_tokens": cfg.count("index_topk"),
    }
    owners = cfg.per_layer("indexer_types", n_layers) or ["full"] * n_layers
    unknown = sorted({str(owner) for owner in owners} - {"full", "shared"})
    if unknown:
        raise cfg.error(f"indexer_types: unknown type {unknown[0]!r}", "full or shared")
    return [DSA(indexer=owner == "full", **shape) for owner in owners]


def _kimi_linear(cfg: Config, recipe: Recipe, n_layers: int) -> list[Attention]:
    """Kimi delta attention beside MLA (arXiv:2510.26692); layers are counted from 1."""
    linear = cfg.part("linear_attn_config")
    full = linear.listed("full_attn_layers")
    named = [*full, *linear.listed("kda_layers")]
    if sorted(map(str, named)) != sorted(map(str, range(1, n_layers + 1))):
        raise linear.error(f"the lists must name each of {n_layers} layers once")
    heads, width = linear.count("num_heads"), linear.count("head_dim")
    delta = Linear(
        variant="kda",
        n_heads=heads,
        d_head=width,
        n_groups=heads,
        d_state=width,
        d_conv=linear.count("short_conv_kernel_size"),
        d_gate_rank=width,
        full_rank_gate=linear.flag("use_full_rank_gate"),
    )
    linear.refuse_unread()
    latent = _latent(cfg, recipe, 1)[0]
    return [latent if layer in full else delta for layer in range(1, n_layers + 1)]


def _compressed(cfg: Config, _recipe: Recipe, n_layers: int) -> list[Attention]:
    """DeepSeek-V4: a short window beside tokens compressed 4 (with an indexer) or 128 to one."""
    cfg.get("num_key_value_heads", "attention_bias")
    shape: dict[str, Any] = {
        "n_heads": cfg.count("num_attention_heads"),
        "d_head": cfg.count("head_dim"),
        "d_rope": cfg.count("qk_rope_head_dim"),
        "q_lora_rank": cfg.count("q_lora_rank"),
        "o_lora_rank": cfg.count("o_lora_rank"),
        "n_output_groups": cfg.count("o_groups"),
        "window_tokens": cfg.count("sliding_window"),
    }
    index: dict[str, Any] = {
        "n_index_heads": cfg.count("index_n_heads"),
        "d_index": cfg.count("index_head_dim"),
        "top_k_tokens": cfg.count("index_topk"),
    }
    ratios = cfg.per_layer("compress_ratios", n_layers) or []
    wrong = [ratio for ratio in ratios if type(ratio) is not int or ratio < 0]
    if wrong:
        raise cfg.error(f"compress_ratios: {wrong[0]!r} is not a ratio")
    return [Compressed(ratio=ratio, **shape, **(index if ratio == 4 else {})) for ratio in ratios]


def _block_sparse(cfg: Config, recipe: Recipe, n_layers: int) -> list[Attention]:
    """MiniMax-M3: grouped queries that attend to the best blocks, by an index key per token."""
    sparse = cfg.part("sparse_attention_config")
    full = grouped(cfg, recipe)
    marks = sparse.per_layer("sparse_attention_freq", n_layers)
    if not sparse.flag("use_sparse_attention", default=True) or marks is None:
        return [full] * n_layers
    shared = {part.name: getattr(full, part.name) for part in fields(full) if part.name != "kind"}
    chosen = BlockSparse(
        **shared,
        n_index_heads=sparse.count("sparse_num_index_heads"),
        d_index=sparse.count("sparse_index_dim"),
        top_k_tokens=sparse.count("sparse_topk_blocks") * sparse.count("sparse_block_size"),
    )
    return [chosen if mark else full for mark in marks]


_MIXERS: tuple[tuple[str, Callable[[Config, Recipe, int], list[Attention]]], ...] = (
    ("linear_attn_config", _kimi_linear),
    ("compress_ratios", _compressed),
    ("sparse_attention_config", _block_sparse),
    ("kv_lora_rank", _latent),
)
