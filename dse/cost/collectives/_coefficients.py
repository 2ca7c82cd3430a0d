"""Reads fitted collective constants: one JSON file, by fabric and engine.

A fabric that was never measured takes the constants of the measured one most like it: the same kind
of link, then the nearest bandwidth. Its efficiencies carry over; its start-up times scale with the
latencies that the catalog states, where both are stated.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dse.base.digest import digest
from dse.cost.collectives._base import Constants, Exchange, Protocol
from dse.hardware.fabric import Fabric

# Whose all-reduce prices an engine that has none of its own here.
ENGINES = ("vllm", "sglang", "trtllm", "nccl")
MEASURED_INTERVAL = (0.88, 1.15)
# Spans, links and kinds that nobody measured.
ASSUMED_INTERVAL = (0.65, 1.6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Constants of one measured fabric: `kind` and `bytes_per_s` say what it resembles,
    `all_reduce` holds one ladder an engine.
    """

    fabric: str
    kind: str
    bytes_per_s: float
    all_reduce: Mapping[str, tuple[Protocol, ...]]
    ladders: Mapping[str, tuple[Protocol, ...]]
    exchanges: Mapping[str, tuple[Exchange, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`constants` for a fabric; `exact` if it was measured itself."""

    constants: Constants
    exact: bool


def path() -> Path:
    """Where the shipped constants lie."""
    return Path(str(files("dse"))) / "catalog" / "coefficients" / "collectives.json"


@cache
def load() -> tuple[str, tuple[Measured, ...]]:
    """Digest of the file and every measured fabric."""
    text = path().read_text()
    data = json.loads(text)
    return digest(text), tuple(decode(each) for each in data["fabrics"])


def find(fabric: Fabric, engine: str | None) -> Found:
    """The constants of `fabric` under `engine` (an engine's custom all-reduce, or `nccl`)."""
    _, known = load()
    like = min(known, key=lambda each: _unlike(each, fabric))
    names = (engine or "", *ENGINES)
    ladder = next(like.all_reduce[name] for name in names if name in like.all_reduce)
    library = like.all_reduce["nccl"]
    ladders = {**like.ladders, "all_reduce": ladder, "library_all_reduce": library}
    exact = like.fabric == fabric.name
    constants = Constants(ladders=ladders, exchanges=like.exchanges)
    return Found(constants=constants if exact else _slower(constants, fabric, like), exact=exact)


def _unlike(each: Measured, fabric: Fabric) -> tuple[bool, bool, float]:
    octaves = abs(float(np.log2(each.bytes_per_s / fabric.scale_up.bytes_per_s)))
    return each.fabric != fabric.name, each.kind != fabric.kind, octaves


def _slower(constants: Constants, fabric: Fabric, like: Measured) -> Constants:
    """On another kind of link nothing starts faster than the latency that its file states."""
    if like.kind == fabric.kind:
        return constants
    stated = fabric.scale_up.latency_s
    ladders = {
        kind: tuple(replace(p, base_s=max(p.base_s, stated)) for p in ladder)
        for kind, ladder in constants.ladders.items()
    }
    return replace(constants, ladders=ladders)


def decode(data: Mapping[str, Any]) -> Measured:
    """One fabric of the file."""
    return Measured(
        fabric=data["fabric"],
        kind=data["kind"],
        bytes_per_s=data["bytes_per_s"],
        all_reduce={key: _ladder(rows) for key, rows in data["all_reduce"].items()},
        ladders={key: _ladder(rows) for key, rows in data["ladders"].items()},
        exchanges={
            key: tuple(Exchange(**row) for row in rows) for key, rows in data["exchanges"].items()
        },
    )


def _ladder(rows: Sequence[Mapping[str, Any]]) -> tuple[Protocol, ...]:
    return tuple(Protocol(**row) for row in rows)
