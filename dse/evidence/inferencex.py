"""How InferenceX launches its servers: the settings that its rows leave to the scripts.

Each is a fact of the benchmark scripts of SemiAnalysis InferenceX
(https://github.com/SemiAnalysisAI/InferenceX, benchmarks/single_node; read 2026-11-30), none is
fitted. Rows draw lengths uniformly from 0.8 to 1.0 of the nominal ones and send ten prompts for
each request in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dse.hardware import GPU, DType
from dse.model import Model
from dse.serving.engine import Engine
from dse.serving.lengths import Uniform

__all__ = ["PROMPTS_PER_SLOT", "Launch", "launch", "spread"]

PROMPTS_PER_SLOT: Final = 10
_SPREAD: Final = (0.8, 1.0)
_TRT_LEAST_TOKENS: Final = 8192
_NEWER: Final = ("blackwell", "blackwell-ultra")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Settings of one launch; None leaves the engine's default or what the row states.

    `poll_steps` is SGLang's `--scheduler-recv-interval`: new requests are looked for once in so
    many decode steps.
    """

    max_num_batched_tokens: int | None = None
    kv: DType | None = None
    poll_steps: int = 1

    def applied(self, engine: Engine) -> Engine:
        """`engine` as launched, its prefix cache off as in every script."""
        tokens = self.max_num_batched_tokens or engine.max_num_batched_tokens
        return replace(engine, max_num_batched_tokens=tokens, prefix_caching=False)


def launch(
    engine: Engine,
    model: Model,
    gpu: GPU,
    weights: DType,
    *,
    isl_tokens: float,
    concurrency: int,
    dp: int = 1,
) -> Launch:
    """The launch of `model` on `gpu` at a concurrency."""
    if engine.name == "sglang":
        return _sglang(model, gpu, weights, concurrency)
    if engine.name == "trtllm":
        return _trtllm(model, isl_tokens, concurrency, dp)
    kv = DType.FP8 if _is_vllm_fp8_kv(model, gpu) else None
    return Launch(max_num_batched_tokens=8192, kv=kv)


def spread(nominal_tokens: float) -> Uniform:
    """Lengths as the client draws them."""
    low, high = (round(nominal_tokens * factor) for factor in _SPREAD)
    return Uniform(low_tokens=low, high_tokens=high)


def _sglang(model: Model, gpu: GPU, weights: DType, concurrency: int) -> Launch:
    """dsr1_*.sh, qwen3.5_*.sh: polls relaxed on Blackwell, four decode steps at once on AMD."""
    is_qwen = "Qwen3.5" in model.name
    if gpu.vendor.lower() == "amd":
        return Launch(max_num_batched_tokens=131_072, kv=DType.FP8, poll_steps=4)
    if gpu.architecture in _NEWER:
        tokens = 16_384 if weights is DType.NVFP4 else 32_768
        polls = 30 if concurrency >= 16 else 10
        return Launch(max_num_batched_tokens=tokens, kv=DType.FP8, poll_steps=polls)
    if is_qwen:
        return Launch(max_num_batched_tokens=16_384, kv=DType.FP8)
    return Launch(max_num_batched_tokens=32_768)


def _trtllm(model: Model, isl_tokens: float, concurrency: int, dp: int) -> Launch:
    """dsr1_*_trt.sh, gptoss_*_trt.sh, 70b_*_trt_slurm.sh: FP8 cache throughout."""
    if model.name.lower().startswith("gpt-oss"):
        return Launch(max_num_batched_tokens=20_000, kv=DType.FP8)
    if not model.is_moe:
        return Launch(max_num_batched_tokens=16_384, kv=DType.FP8)
    tokens = int(-(-(concurrency // dp + isl_tokens + 64) // 64) * 64)
    return Launch(max_num_batched_tokens=max(tokens, _TRT_LEAST_TOKENS), kv=DType.FP8)


def _is_vllm_fp8_kv(model: Model, gpu: GPU) -> bool:
    """70b_*.sh keeps an FP8 cache on every GPU, gptoss_*.sh on Blackwell."""
    if not model.is_moe:
        return True
    return model.name.lower().startswith("gpt-oss") and gpu.architecture in _NEWER
