"""What a checkpoint stores each tensor class in, and its bytes where a class is mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dse.hardware.dtype import DType
from dse.model.attention.linear import Linear
from dse.model.hf._config import Config
from dse.model.hf._modules import canonical, listed, lookup, module_names
from dse.model.model import LayerGroup
from dse.model.precision import QUANTISED_CLASSES
from dse.model.shard import WHOLE
from dse.model.tensor import Tensor

_ALGORITHMS = {
    "FP8": DType.FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": DType.FP8,
    "FP8_PB_WO": DType.FP8_BLOCK,
    "NVFP4": DType.NVFP4,
    "W4A16_NVFP4": DType.NVFP4,
    "NVFP4_AWQ": DType.NVFP4,
    "MXFP8": DType.MXFP8,
    "MXFP4": DType.MXFP4,
    "W4A16_MXFP4": DType.MXFP4,
    "W4A16_AWQ": DType.INT4,
    "INT4_AWQ": DType.INT4,
    "W8A8_SQ_PER_CHANNEL": DType.INT8,
}
_LINEAR_CLASSES = frozenset(QUANTISED_CLASSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """`base` for linear tensors that no entry of `excluded` covers; `by_module` for listed ones.

    `expert` is the format of experts where it is another.
    """

    base: DType | None = None
    excluded: tuple[str, ...] = ()
    by_module: Mapping[str, str] = field(default_factory=dict)
    expert: DType | None = None
    kv_cache: str = ""

    def format_of(self, tensor: Tensor, names: tuple[str, ...]) -> DType | None:
        """The quantised format of a tensor, None if it stays as it was."""
        algorithm = lookup(self.by_module, names)
        if algorithm is not None:
            return _ALGORITHMS[algorithm]
        if tensor.cls not in _LINEAR_CLASSES or listed(self.excluded, names):
            return None
        if tensor.cls == "expert" and self.expert:
            return self.expert
        return self.base


def scheme_of(cfg: Config, companion: Mapping[str, Any] | None) -> Scheme:
    """Read `quantization_config` and, where there is one, `hf_quant_config.json`."""
    stated = cfg.part("quantization_config")
    extra = cfg.entry("hf_quant_config", companion or {}).part("quantization")
    is_fp4 = cfg.get("expert_dtype") == "fp4" and not extra.text
    if not stated.text and not extra.text:
        return Scheme()
    by_module = _by_module(extra) or _by_module(stated)
    base = _base(stated, extra)
    excluded = extra.listed("exclude_modules") or stated.listed("exclude_modules")
    excluded = excluded or stated.listed("modules_to_not_convert") or stated.listed("ignore")
    if by_module and base:  # the list belongs to the listed format; the rest keeps `base`
        excluded = []
    kv = extra.get("kv_cache_quant_algo") or stated.get("kv_cache_quant_algo") or ""
    return Scheme(
        base=base,
        excluded=tuple(map(str, excluded)),
        by_module=by_module,
        expert=DType.MXFP4 if is_fp4 and not by_module else None,
        kv_cache=str(kv) or ("FP8" if stated.has("kv_cache_scheme") else ""),
    )


def _by_module(cfg: Config) -> dict[str, str]:
    listed = cfg.part("quantized_layers").text
    found = {
        canonical(name): str(cfg.entry(f"quantized_layers.{name}", entry).get("quant_algo"))
        for name, entry in listed.items()
    }
    unknown = sorted(set(found.values()) - _ALGORITHMS.keys())
    if unknown:
        raise cfg.error(f"quantized_layers: unknown quant_algo {unknown[0]!r}")
    return found


def _base(stated: Config, extra: Config) -> DType | None:
    algorithm = extra.get("quant_algo") or stated.get("quant_algo")
    method = stated.get("quant_method")
    if algorithm == "MIXED_PRECISION":
        return DType.FP8_BLOCK if method == "fp8" else None
    if algorithm is not None:
        if str(algorithm) not in _ALGORITHMS:
            raise stated.error(f"unknown quant_algo {algorithm!r}", ", ".join(_ALGORITHMS))
        return _ALGORITHMS[str(algorithm)]
    if method == "fp8":
        return DType.FP8_BLOCK if stated.has("weight_block_size") else DType.FP8
    if method == "mxfp4":
        return DType.MXFP4
    if method in ("awq", "gptq"):
        return _by_bits(stated, stated.count("bits", default=4), "int")
    groups = stated.part("config_groups").text
    for name, group in groups.items():
        weights = stated.entry(f"config_groups.{name}", group).part("weights")
        return _by_bits(weights, weights.count("num_bits"), str(weights.get("type")))
    raise stated.error(f"unknown quant_method {method!r}")


def _by_bits(cfg: Config, bits: int, kind: str) -> DType:
    group = cfg.count("group_size", default=0)
    table = {
        (8, "float", 0): DType.FP8,
        (8, "float", 32): DType.MXFP8,
        (8, "int", 0): DType.INT8,
        (4, "float", 16): DType.NVFP4,
        (4, "float", 32): DType.MXFP4,
        (4, "int", 32): DType.INT4_G32,
        (4, "int", 128): DType.INT4,
    }
    if (bits, kind, group) not in table:
        raise cfg.error(f"{bits}-bit {kind} in groups of {group or 'a row'} is not a known format")
    return table[bits, kind, group]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How a checkpoint is stored: the fields of `Model` that say it."""

    checkpoint: DType
    quantised: tuple[str, ...]
    exceptions: Mapping[str, DType]
    checkpoint_bytes: float | None


def stored(
    scheme: Scheme,
    layers: list[LayerGroup],
    outside: tuple[Tensor, ...],
    d_model: int,
    unquantised: DType,
    *,
    beside: tuple[Tensor, ...] = (),
    is_parallel: bool = False,
) -> Stored:
    """The format of each tensor class, by most of its elements.

    The bytes of all, `beside` (drafts and encoders) in the formats of their classes, where a class
    is mixed; None where the classes say it exactly.
    """
    elements: dict[str, dict[DType, float]] = {}
    for tensor, names in _named(layers, outside, d_model, is_parallel=is_parallel):
        if not tensor.total_elements:
            continue
        found = scheme.format_of(tensor, names) or unquantised
        count = elements.setdefault(tensor.cls, {})
        count[found] = count.get(found, 0.0) + tensor.total_elements
    formats = {cls: max(count, key=count.__getitem__) for cls, count in elements.items()}
    weight: dict[DType, float] = {}
    for cls, format_ in formats.items():
        if format_ is not unquantised:
            weight[format_] = weight.get(format_, 0.0) + elements[cls][format_]
    checkpoint = max(weight, key=weight.__getitem__) if weight else unquantised
    quantised = tuple(sorted(cls for cls, each in formats.items() if each is checkpoint))
    is_mixed = any(
        format_ is not formats[cls] for cls, count in elements.items() for format_ in count
    )
    size = sum(
        amount * format_.bytes_per_element
        for count in elements.values()
        for format_, amount in count.items()
    )
    size += sum(
        tensor.total_elements * formats.get(tensor.cls, unquantised).bytes_per_element
        for tensor in beside
    )
    return Stored(
        checkpoint=checkpoint,
        quantised=quantised if weight else QUANTISED_CLASSES,
        exceptions={
            cls: each
            for cls, each in sorted(formats.items())
            if each not in {checkpoint, unquantised}
        },
        checkpoint_bytes=size if is_mixed else None,
    )


def _named(
    layers: list[LayerGroup], outside: tuple[Tensor, ...], d_model: int, *, is_parallel: bool
) -> list[tuple[Tensor, tuple[str, ...]]]:
    found: list[tuple[Tensor, tuple[str, ...]]] = []
    for index, group in enumerate(layers):
        mixer = group.attention
        is_kda = isinstance(mixer, Linear) and mixer.variant == "kda"
        for tensor in group.tensors(d_model, WHOLE):
            names = module_names(tensor.name, index, is_kda=is_kda, is_parallel=is_parallel)
            found.append((tensor, names))
    found += [(tensor, module_names(tensor.name, None)) for tensor in outside]
    return found
