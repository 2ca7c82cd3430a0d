"""How InferenceX launches its servers: the settings that its rows leave to the scripts.

Each is a fact of the benchmark scripts of SemiAnalysis InferenceX
(https://github.com/SemiAnalysisAI/InferenceX, benchmarks/single_node; read 2026-11-30), none is
fitted. Rows draw lengths uniformly from 0.8 to 1.0 of the nominal ones and send ten prompts for
each request in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
# VLLM_MXFP4_USE_MARLIN=1 on Hopper.
_MARLIN: Final = "vllm_compressedtensorsw4a4mxfp4moe_marlin_marlinexperts_situ_as_silu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Settings of one launch; None leaves the engine's default or what the row states.

    `poll_steps` is SGLang's `--scheduler-recv-interval`: new requests are looked for once in so
    many decode steps. `kernels` are implementations that the script chooses.
    """

    max_num_batched_tokens: int | None = None
    kv: DType | None = None
    poll_steps: int = 1
    max_num_seqs: int | None = None
    hbm_fraction: float | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)

    def applied(self, engine: Engine) -> Engine:
        """`engine` as launched, its prefix cache off as in every script."""
        tokens = self.max_num_batched_tokens or engine.max_num_batched_tokens
        # `async-scheduling: true` in every script of an engine that does not have it by default.
        host = replace(engine.host, overlapped=True)
        return replace(
            engine,
            host=host,
            max_num_batched_tokens=tokens,
            max_num_seqs=self.max_num_seqs or engine.max_num_seqs,
            hbm_fraction=self.hbm_fraction or engine.hbm_fraction,
            prefix_caching=False,
            kernels={**engine.kernels, **self.kernels},
        )


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
    marlin = _is_gpt_oss(model) and gpu.architecture == "hopper"
    named = {"moe/mxfp4_wo": _MARLIN} if marlin else {}
    fraction = 0.95 if "MiniMax" in model.name else None
    return Launch(max_num_batched_tokens=8192, hbm_fraction=fraction, kv=kv, kernels=named)


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
        is_fp4 = weights is DType.NVFP4
        return Launch(
            max_num_batched_tokens=16_384 if is_fp4 else 32_768,
            max_num_seqs=256 if is_fp4 else 128,
            hbm_fraction=0.85 if is_fp4 else 0.82,
            kv=DType.FP8,
            poll_steps=30 if concurrency >= 16 else 10,
        )
    if is_qwen:
        return Launch(max_num_batched_tokens=16_384, max_num_seqs=128, kv=DType.FP8)
    return Launch(max_num_batched_tokens=32_768, max_num_seqs=512)


def _trtllm(model: Model, isl_tokens: float, concurrency: int, dp: int) -> Launch:
    """dsr1_*_trt.sh, gptoss_*_trt.sh, 70b_*_trt_slurm.sh: FP8 cache throughout."""
    if _is_gpt_oss(model):
        return Launch(max_num_batched_tokens=20_000, kv=DType.FP8)
    if not model.is_moe:
        return Launch(max_num_batched_tokens=16_384, kv=DType.FP8)
    tokens = int(-(-(concurrency // dp + isl_tokens + 64) // 64) * 64)
    named = {"moe/nvfp4": "moe_torch_flow_cutlass"} if dp > 1 else {}
    most = max(tokens, _TRT_LEAST_TOKENS)
    return Launch(max_num_batched_tokens=most, kv=DType.FP8, kernels=named)


def _is_vllm_fp8_kv(model: Model, gpu: GPU) -> bool:
    """70b_*.sh keeps an FP8 cache on every GPU, gptoss_*.sh on Blackwell."""
    if not model.is_moe:
        return True
    return _is_gpt_oss(model) and gpu.architecture in _NEWER


def _is_gpt_oss(model: Model) -> bool:
    return model.name.lower().startswith("gpt-oss")
