"""Names of weight tensors in checkpoints, and how quantisation lists point at them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

# Our tensor → modules of one layer that hold it, over the families' spellings; one is enough.
_IN_LAYER = {
    "qkv_proj": ("self_attn.q_proj", "self_attn.qkv_proj", "attn.wqkv", "mixer.q_proj"),
    "o_proj": ("self_attn.o_proj", "attn.wo", "mixer.o_proj"),
    "q_proj": ("self_attn.q_proj", "attn.wq"),
    "q_a_proj": ("self_attn.q_a_proj", "attn.wq_a"),
    "q_b_proj": ("self_attn.q_b_proj", "attn.wq_b"),
    "kv_proj": ("attn.wkv", "self_attn.kv_proj"),
    "kv_a_proj": ("self_attn.kv_a_proj_with_mqa", "attn.wkv_a"),
    "kv_b_proj": ("self_attn.kv_b_proj", "attn.wkv_b"),
    "o_a_proj": ("attn.wo_a", "self_attn.o_a_proj"),
    "o_b_proj": ("attn.wo_b", "self_attn.o_b_proj"),
    "compressor": ("attn.compressor.wkv", "self_attn.compressor.wkv"),
    "gate_proj": ("self_attn.g_proj",),
    "index_q": ("self_attn.indexer.wq_b", "attn.indexer.wq_b", "self_attn.index_q_proj"),
    "index_k": ("self_attn.indexer.wk", "attn.indexer.wk", "self_attn.index_k_proj"),
    "up_proj": ("mlp.up_proj", "feed_forward.up_proj", "ffn.w1", "mixer.up_proj"),
    "down_proj": ("mlp.down_proj", "feed_forward.down_proj", "ffn.w2", "mixer.down_proj"),
    "experts": (
        "mlp.experts.0.up_proj",
        "block_sparse_moe.experts.0.w1",
        "feed_forward.experts.0.up_proj",
        "ffn.experts.0.w1",
        "mixer.experts.0.up_proj",
    ),
    "shared_experts": (
        "mlp.shared_experts.up_proj",
        "mlp.shared_expert.up_proj",
        "block_sparse_moe.shared_experts.up_proj",
        "feed_forward.shared_expert.up_proj",
        "ffn.shared_experts.w1",
        "mixer.shared_experts.up_proj",
    ),
    "latent_proj": ("mixer.fc1_latent_proj", "mlp.fc1_latent_proj"),
    "in_proj": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz", "mixer.in_proj"),
    "out_proj": ("linear_attn.out_proj", "mixer.out_proj"),
    "gate_low_rank": ("self_attn.f_a_proj",),
}
# Kimi delta attention names its mixer like any attention.
_KDA = {"in_proj": ("self_attn.q_proj",), "out_proj": ("self_attn.o_proj",)}
# Gemma 4 runs its dense block, which we count as shared, beside experts of the layer itself.
_PARALLEL = {
    "experts": ("experts.gate_up_proj", "moe.gate_up_proj"),
    "shared_experts": ("mlp.up_proj",),
}
_OUTSIDE = {
    "lm_head": ("lm_head", "head"),
    "embed_tokens": ("embed_tokens", "embed", "embeddings"),
}


def module_names(
    tensor: str, layer: int | None, *, is_kda: bool = False, is_parallel: bool = False
) -> tuple[str, ...]:
    """The names that `tensor` may have in a checkpoint, from `layers.` on; () if none can match."""
    if layer is None:
        return _OUTSIDE.get(tensor, ())
    special = (_KDA if is_kda else {}) | (_PARALLEL if is_parallel else {})
    leaves = special.get(tensor, _IN_LAYER.get(tensor, ()))
    return tuple(f"layers.{layer}.{leaf}" for leaf in leaves)


def listed(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
    """Whether any pattern (name, prefix, glob or `re:` expression) covers one of `names`."""
    cover = _compiled(patterns)
    return any(cover.matches(name) for name in names)


def lookup(table: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """The entry of the longest module in `table` that one of `names` is or lies in."""
    for name in names:
        parts = name.split(".")
        for size in range(len(parts), 0, -1):
            if (value := table.get(".".join(parts[:size]))) is not None:
                return value
    return None


def canonical(pattern: str) -> str:
    """A module's name from `layers.` on, or without the prefixes of the whole model."""
    _, found, rest = pattern.partition("layers.")
    if found and not pattern.startswith("mtp"):
        return f"layers.{rest}"
    return re.sub(r"^(model\.|language_model\.|backbone\.)+", "", pattern)


@dataclass(frozen=True, slots=True)
class _Cover:
    """Patterns by kind: modules by full name, words that any component may be, and the rest."""

    modules: dict[str, str]
    words: frozenset[str]
    globs: re.Pattern[str] | None
    expressions: re.Pattern[str] | None

    def matches(self, name: str) -> bool:
        if lookup(self.modules, (name,)) is not None or self.words & set(name.split(".")):
            return True
        if self.globs is not None and self.globs.match(name):
            return True
        return self.expressions is not None and self.expressions.match(f"model.{name}") is not None


@lru_cache(maxsize=8)
def _compiled(patterns: tuple[str, ...]) -> _Cover:
    short = [canonical(pattern) for pattern in patterns if not pattern.startswith("re:")]
    starred = [pattern for pattern in short if "*" in pattern]
    globs = [translate(each) for pattern in starred for each in (pattern, f"{pattern}.*")]
    plain = [pattern for pattern in short if "*" not in pattern]
    expressions = [f"(?:{pattern[3:]})" for pattern in patterns if pattern.startswith("re:")]
    return _Cover(
        {pattern: pattern for pattern in plain if "." in pattern},
        frozenset(pattern for pattern in plain if "." not in pattern),
        re.compile("|".join(globs)) if globs else None,
        re.compile("|".join(expressions)) if expressions else None,
    )
