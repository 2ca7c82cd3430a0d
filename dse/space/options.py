"""Options of a deployment that YAML and the command line write as short texts."""

from __future__ import annotations

from typing import Literal, cast

from dse.base.errors import SpaceError, did_you_mean
from dse.hardware.dtype import DType
from dse.model.ffn import Routing
from dse.serving.deployment import SpeculativeDecoding

__all__ = [
    "NONE",
    "UNIFORM",
    "dtype_of",
    "routing_of",
    "routing_text",
    "speculative_of",
    "speculative_text",
]

NONE, UNIFORM, ZIPF = "none", "uniform", "zipf"
_METHODS = ("mtp", "draft")


def dtype_of(name: str) -> str:
    """Return the canonical name of a number format: `FP8-block` is `fp8_block`."""
    folded = name.lower().replace("-", "_")
    if folded not in {*DType}:
        hint = did_you_mean(name, [*DType]) or f"; one of {', '.join(DType)}"
        raise SpaceError(f"no number format {name!r}{hint}")
    return folded


MOST_DRAFTS = 64
"""Drafted tokens a step: Σ 0.95^i over i > 64 is 0.7, and engines are started with a handful."""


def speculative_of(text: str) -> SpeculativeDecoding | None:
    """Return what `mtp:3:0.8` means: method, drafted tokens a step, acceptance; None for `none`."""
    if text == NONE:
        return None
    method, _, rest = text.partition(":")
    n_draft, _, acceptance = rest.partition(":")
    try:
        drafted, accepted = int(n_draft), float(acceptance)
    except ValueError:
        drafted, accepted = 0, -1.0
    if method not in _METHODS or drafted < 1 or not 0 <= accepted <= 1:
        raise SpaceError(
            f"{text!r} is no speculative decoding",
            "write method:tokens:acceptance as in mtp:3:0.8 (or draft:…), or none",
        )
    if drafted > MOST_DRAFTS:
        raise SpaceError(
            f"{text!r} drafts {drafted:,} tokens a step",
            f"draft at most {MOST_DRAFTS}: even at an acceptance of 0.95 all further ones together "
            "add less than one token to a step",
        )
    named = cast("Literal['mtp', 'draft']", method)
    return SpeculativeDecoding(method=named, n_draft=drafted, acceptance=accepted)


def speculative_text(text: str) -> str:
    """Return `mtp:3:0.8` in its canonical spelling."""
    found = speculative_of(text)
    return NONE if found is None else f"{found.method}:{found.n_draft}:{found.acceptance:g}"


def routing_of(text: str) -> Routing:
    """Return what `uniform` or `zipf:0.6` (the exponent of expert popularity) means."""
    kind, _, exponent = text.partition(":")
    try:
        power = float(exponent) if exponent else 0.0
    except ValueError:
        power = -1.0
    if (kind == UNIFORM and not exponent) or (kind == ZIPF and power > 0):
        return Routing(kind=cast("Literal['uniform', 'zipf']", kind), exponent=power)
    raise SpaceError(f"{text!r} is no routing", "write uniform, or zipf:0.6 for its exponent")


def routing_text(text: str) -> str:
    """Return `zipf:0.6` in its canonical spelling."""
    found = routing_of(text)
    return UNIFORM if found.kind == UNIFORM else f"{ZIPF}:{found.exponent:g}"
