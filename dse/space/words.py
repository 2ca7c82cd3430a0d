"""The words that a condition may use, and the columns that they stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import polars as pl

from dse.serving.deployment import Role
from dse.space.facts import annotation_of, scalar_facts, scalar_type
from dse.space.structure import DEGREES
from dse.space.where import DType, Words

__all__ = ["NUMERIC", "OPTIONS", "TEXTS", "words_of"]

TEXTS = ("branch", "model", "gpu", "fabric", "engine", "weights", "kv")
OPTIONS = ("speculative", "routing")
"""Axes that a branch may leave out; they are columns where it does not."""

NUMERIC: dict[str, DType] = {
    "isl_tokens": pl.Int64,
    "osl_tokens": pl.Int64,
    "batch": pl.Int64,
    "concurrency": pl.Int64,
    "req_per_s": pl.Float64,
}
"""The numeric axes by column name; `concurrency` also follows from batch and replicas."""

_SHORT = {"isl": "isl_tokens", "osl": "osl_tokens"}
_DTYPES: dict[type, DType] = {int: pl.Int64, float: pl.Float64, str: pl.String, bool: pl.Boolean}


def words_of(roles: Sequence[Role], numeric: Iterable[str], own: Collection[str] = ()) -> Words:
    """Return what conditions of a branch with these roles and numeric axes may name.

    GPU facts go by their bare key (`hbm`) or path (`gpu.hbm`), all others by their path. `own` has
    the branch's dimensions: options, and records that a role has to itself (`decode_gpu`), whose
    facts go by their path alone.
    """
    words: dict[str, tuple[str, DType]] = {name: (name, pl.String) for name in TEXTS}
    words |= {name: (name, pl.String) for name in OPTIONS if name in own}
    words |= {name: (name, pl.Int64) for name in ("n_gpus", "n_replicas")}
    for role in roles:
        before = "" if role == "both" else f"{role}_"
        for name in (*DEGREES, "n_replicas"):
            words[f"{before}{name}"] = (f"{before}{name}", pl.Int64)
    axes = {"isl_tokens", "osl_tokens", *numeric}
    if "batch" in axes:
        axes.add("concurrency")
    words |= {name: (name, NUMERIC[name]) for name in NUMERIC if name in axes}
    words |= {short: (name, NUMERIC[name]) for short, name in _SHORT.items()}
    for root in ("gpu", "fabric", "model", "engine"):
        names = [name for role in roles if (name := f"{role}_{root}") in own]
        words |= {name: (name, pl.String) for name in names}
        for path in scalar_facts(root):
            for name in names or [root]:
                full = f"{name}.{path.partition('.')[2]}"
                words[full] = (full, _dtype(path))
    for path in scalar_facts("gpu"):
        if path in words:
            words.setdefault(path.removeprefix("gpu."), words[path])
    return words


def _dtype(path: str) -> DType:
    return _DTYPES[scalar_type(annotation_of(path))]
