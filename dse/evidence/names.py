"""What measured rows call models, GPUs and engines → what the catalog calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dse.base.errors import CatalogError
from dse.catalog import Catalog
from dse.hardware import GPU, DType
from dse.model import Model
from dse.serving.engine import Engine

__all__ = ["dtype_named", "engine_named", "gpu_named", "model_named"]

_MODELS: Final[Mapping[str, str]] = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b-fp8",
    "zhipuai/GLM-5": "glm-5",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3.1-nvfp4",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "DeepSeek-R1-0528": "deepseek-r1",
    "DeepSeek-R1-FP4": "deepseek-r1",
    "LLaMA 7B": "llama-2-7b",
    "LLaMA 70B": "llama-2-70b",
    "Mistral 7B": "mistral-7b-v0.1",
    "Llama-2-70B-chat": "llama-2-70b",
    "Llama-3-70B": "llama-3.1-70b",  # same shapes; only the context differs
}
# What a row's model name says beside the model: a release, a number format, an instruction tune.
_MARKS: Final = re.compile(r"(?i)-(instruct|fp8|fp4|kv|2507|awq|0528|chat)$")
_GPUS: Final[Mapping[str, str]] = {
    "h100-64gb": "h100-64gb",
    "h100-pcie": "h100-pcie",
    "h100-nvl": "h100-nvl",
    "a100-pcie": "a100-pcie",
    "gh200-480gb": "gh200-96gb",
    "gh200-grace-hopper-superchip-144gb": "gh200-144gb",
    "gh200-grace-hopper-superchip-96gb": "gh200-96gb",
    "rtx-pro-6000": "rtx-pro-6000",
    "h800": "h800",
    "rtx-4090": "rtx-4090",
    "a100": "a100-sxm",
    "h100": "h100-sxm",
    "h200": "h200-sxm",
    "h20": "h20-96gb",
    "b200": "b200-sxm",
    "b300": "b300-sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "mi300x": "mi300x",
    "mi325x": "mi325x",
    "mi355x": "mi355x",
    "l40s": "l40s",
}
_DTYPES: Final[Mapping[str, DType]] = {
    "fp16": DType.BF16,
    "bf16": DType.BF16,
    "bfloat16": DType.BF16,
    "fp8": DType.FP8,
    "fp8_block": DType.FP8_BLOCK,
    "nvfp4": DType.NVFP4,
    "fp4": DType.NVFP4,
    "mxfp4": DType.MXFP4,
    "int4": DType.INT4,
    "int4_wo": DType.INT4,
    "int8": DType.INT8,
}
# Above this much memory vLLM's API server takes the larger defaults (vllm/engine/arg_utils.py).
_VLLM_LARGE_BYTES = 70 * 2**30
_VLLM_SMALL_TOKENS, _VLLM_SMALL_SEQS = 2048, 256


def model_named(catalog: Catalog, text: str) -> Model | None:
    """The model that a row names by a path such as `Qwen/Qwen3-32B`; None if it is not known.

    What the name says beside the model (`-Instruct`, `-FP8`) is dropped from the end, mark by
    mark, until the catalog knows what is left.
    """
    stem = text.split("(", maxsplit=1)[0].strip().rpartition("/")[2]
    stem = _MODELS.get(text, _MODELS.get(stem, stem))
    stem = re.sub(r"(?i)^llama v", "llama-", stem).replace(" ", "-")
    while stem:
        try:
            return catalog.model(stem)
        except CatalogError:
            shorter = _MARKS.sub("", stem)
            if shorter == stem:
                return None
            stem = shorter
    return None


def gpu_named(catalog: Catalog, text: str) -> GPU | None:
    """The GPU that a row names (`h100_sxm`, `H100-64GB (custom)`); None if it is not known."""
    folded = re.sub(r"[\s_]+", "-", text.lower())
    folded = re.sub(r"^(virtualized-)?(nvidia|amd)-(instinct-)?", "", folded)
    for start, name in _GPUS.items():
        if folded.startswith(start):
            return catalog.gpu(name)
    return None


def engine_named(catalog: Catalog, name: str, version: str, gpu: GPU) -> Engine | None:
    """The newest profile of an engine that is not newer than `version` (else its oldest), with the
    defaults that the engine takes on this GPU.
    """
    family = next((e for e in ("vllm", "sglang", "trtllm") if e in _engine_text(name)), None)
    if family is None:
        return None
    stems = [stem for stem in catalog.names("engine") if stem.startswith(f"{family}@")]
    known = sorted(stems, key=lambda stem: _version(stem.partition("@")[2]))
    asked = _version(version)
    older = [stem for stem in known if _version(stem.partition("@")[2]) <= asked]
    engine = catalog.engine((older or known)[-1] if older or not asked else known[0])
    if family == "vllm" and (gpu.hbm_bytes < _VLLM_LARGE_BYTES or "a100" in gpu.name.lower()):
        return replace(
            engine, max_num_batched_tokens=_VLLM_SMALL_TOKENS, max_num_seqs=_VLLM_SMALL_SEQS
        )
    return engine


def dtype_named(text: str | None) -> DType | None:
    """The format that a row names; None if it says nothing that is known."""
    head = re.split(r"[\s/(\[]", (text or "").strip().lower())[0]
    return _DTYPES.get(head) or _DTYPES.get(head.split("_e4m3")[0])


def _engine_text(name: str) -> str:
    folded = name.lower().replace("-", "").replace("_", "").replace("tensorrt", "trt")
    return folded if "trtllm" in folded else folded.replace("trt", "trtllm")


def _version(text: str) -> tuple[int, ...]:
    """`vLLM 0.9.0.1 ROCm` → (0, 9, 0, 1); () where there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else ()
