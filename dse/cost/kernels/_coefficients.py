"""Reads fitted kernel coefficients: one JSON file a GPU, heads decoded on first use.

A file holds provenance and *slices*: one implementation of one family in one number format. The
networks of a slice are base64 of little-endian float32, layer after layer; there is no pickle.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dse.base.digest import digest
from dse.base.errors import CatalogError
from dse.cost.kernels._head import Head
from dse.cost.kernels._transfer import Traits
from dse.hardware.gpu import GPU

FOLDER = "kernels"
FALLBACK_SHARE = 0.15


@dataclass(frozen=True, kw_only=True)
class KernelSlice:
    """Coefficients of one implementation with what they were fitted on.

    `compute` is the format of its arithmetic, `d_heads` the head sizes it was measured on (empty
    where there are none), `n_rows` the rows of the fit, `low` and `high` the factors of its 80%
    residual interval on held-out shapes. `busy_share` is the median of roofline over measured time
    where the roofline takes 20 µs or more. `networks` of the same `sizes` follow one another.
    """

    family: str
    variant: str
    engine: str
    version: str
    implementation: str
    compute: str
    d_heads: tuple[int, ...]
    n_rows: int
    low: float
    high: float
    sizes: tuple[int, ...]
    weights: str
    busy_share: float = 1.0
    networks: int = 1

    @property
    def is_fallback(self) -> bool:
        """Whether it never used the hardware (Triton attention of unusual heads, dequantising
        first, untuned tiles): such times say nothing of another GPU's kernels.
        """
        return self.busy_share < FALLBACK_SHARE

    @cached_property
    def head(self) -> Head:
        """The decoded head."""
        flat = np.frombuffer(b64decode(self.weights), dtype="<f4")
        start = 2 * self.sizes[0]
        bounds = flat[:start].reshape(2, -1)
        first, *others = (self._layers(part) for part in np.split(flat[start:], self.networks))
        return Head(layers=first, bounds=bounds, others=tuple(others))

    def _layers(self, flat: Any) -> tuple[Any, ...]:
        """Weights and biases of one network."""
        layers, start = [], 0
        for rows, columns in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            layers.append(flat[start : start + rows * columns].reshape(rows, columns))
            start += rows * columns
            layers.append(flat[start : start + columns])
            start += columns
        return tuple(layers)

    @classmethod
    def encode(cls, head: Head, **facts: Any) -> "KernelSlice":
        """A slice that holds `head` and the other fields given."""
        if head.bounds is None:
            raise ValueError("a fitted head states the range it was fitted on")
        networks = (head.layers, *head.others)
        parts = (head.bounds, *(layer for layers in networks for layer in layers))
        flat = np.concatenate([part.ravel() for part in parts]).astype("<f4")
        sizes = (head.layers[0].shape[0], *(bias.shape[0] for bias in head.layers[1::2]))
        weights = b64encode(flat.tobytes()).decode()
        return cls(sizes=sizes, weights=weights, networks=len(networks), **facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """All slices of one GPU. `digest` identifies the coefficients, `provenance` tells their origin;
    `gpu_facts` are what similarity to another GPU is judged by. `in_step`: measured inside an
    engine's steps, not kernel by kernel.
    """

    gpu: str
    architecture: str
    gpu_facts: Mapping[str, float]
    provenance: Mapping[str, str]
    slices: tuple[KernelSlice, ...]
    digest: str
    in_step: bool = False

    @property
    def traits(self) -> Traits:
        """Traits of the GPU that the table was measured on."""
        return Traits(**{name: self.gpu_facts[name] for name in Traits.__dataclass_fields__})

    def over(self, other: "KernelTable") -> "KernelTable":
        """This table, completed by slices of `other` in families and formats that it lacks."""
        has = {(each.family, each.variant) for each in self.slices}
        lent = tuple(each for each in other.slices if (each.family, each.variant) not in has)
        return replace(
            self, slices=(*self.slices, *lent), digest=digest((self.digest, other.digest))
        )

    def find(self, family: str, variant: str) -> tuple[KernelSlice, ...]:
        """Slices of a family in one number format."""
        return tuple(s for s in self.slices if s.family == family and s.variant == variant)


def facts(gpu: GPU) -> dict[str, float]:
    """What likeness of GPUs is judged by, ridge point (FLOP/B) and bandwidth per SM (B/s), and the
    traits that efficiencies are carried over by.
    """
    return {
        **asdict(Traits.of(gpu)),
        "ridge_flop_per_byte": gpu.peak_flop_per_s["bf16"] / gpu.hbm_bytes_per_s,
        "bytes_per_s_per_sm": gpu.hbm_bytes_per_s / gpu.sm_count,
    }


def folder() -> Path:
    """Where the shipped coefficients lie."""
    return Path(str(files("dse"))) / "catalog" / "coefficients" / FOLDER


@cache
def gpus() -> tuple[str, ...]:
    """Names of the GPUs with coefficients of their own."""
    return tuple(sorted(path.stem for path in folder().glob("*.json")))


@cache
def load(gpu: str) -> KernelTable:
    """The coefficients of one GPU of `gpus()`."""
    return read(folder() / f"{gpu}.json")


def read(path: Path) -> KernelTable:
    """A coefficient file, parsed once for each of its states. CatalogError if it is not one."""
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror}", "the file must be where it was") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CatalogError(
            f"{path}: no kernel coefficients ({error})", "write it with `dse calibrate kernels`"
        ) from error


@cache
def _parsed(path: Path, _changed_ns: int) -> KernelTable:
    text = path.read_bytes()
    data = json.loads(text)
    return KernelTable(
        gpu=data["gpu"],
        architecture=data["architecture"],
        gpu_facts=data["gpu_facts"],
        provenance=data["provenance"],
        slices=tuple(_slice(each) for each in data["slices"]),
        digest=digest(text.decode()),
        in_step=data.get("in_step", False),
    )


def write(path: Path, table: KernelTable) -> None:
    """Write `table`, one slice a line, so that a refit changes only the lines it changed."""
    names = ("gpu", "architecture", "gpu_facts", "provenance")
    head = {name: getattr(table, name) for name in names}
    if table.in_step:
        head["in_step"] = True
    lines = ",\n  ".join(json.dumps(_fields(each)) for each in table.slices)
    body = json.dumps(head, indent=1)[:-2]
    path.write_text(f'{body},\n "slices": [\n  {lines}\n ]\n}}\n')


def _slice(data: Mapping[str, Any]) -> KernelSlice:
    listed = {key: tuple(data[key]) for key in ("d_heads", "sizes")}
    return KernelSlice(**{**data, **listed})


def _fields(each: KernelSlice) -> dict[str, Any]:
    names: Sequence[str] = tuple(KernelSlice.__dataclass_fields__)
    several = each.networks > 1  # one is not stated
    return {name: getattr(each, name) for name in names if several or name != "networks"}
