"""Constants that were fitted end to end, the rows that each saw, and the rows that none saw."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

import polars as pl

__all__ = ["FITS", "Fit", "seen", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`constants` of `profile`, set while looking at `rows`; `saw` is true of those rows in a frame
    of predictions (labels `engine`, `gpu`, `model`, `mode`, `source`).
    """

    constants: str
    profile: str
    rows: str
    saw: pl.Expr


def _engine(name: str) -> pl.Expr:
    return pl.col("engine") == name


# Graded rows of InferenceX are of the same series as those of the sample, so both count as seen.
_INFERENCEX: Final = pl.col("source").str.to_lowercase().str.contains("inferencex")
_STATIC: Final = pl.col("mode") == "static"

FITS: Final = (
    Fit(
        constants="host step, host request, prefill_gap",
        profile="vllm@0.6",
        rows="71 rows of Mind the Memory Gap (H100 64 GB, four models)",
        saw=pl.col("gpu") == "H100-64GB",
    ),
    Fit(
        constants="prefill_gap, host times, elements_per_clock, hbm_share",
        profile="trtllm@0.8, and all but attention 0.10",
        rows="static batches of TensorRT-LLM 0.8 and 0.9, 239 rows",
        saw=_engine("trtllm") & _STATIC,
    ),
    Fit(
        constants="prefill_gap, eager_op, arrival",
        profile="trtllm@1.0",
        rows="sample: H100, Llama-3.1-8B, Qwen3-32B, Qwen3-235B",
        saw=_engine("trtllm")
        & (pl.col("gpu") == "h100_sxm")
        & pl.col("model").str.contains("Llama-3.1-8B|Qwen3-32B|Qwen3-235B"),
    ),
    Fit(
        constants="eager_op, arrival, launch_overlap",
        profile="trtllm@1.1",
        rows="sample: InferenceX rows of TensorRT-LLM",
        saw=_engine("trtllm") & _INFERENCEX,
    ),
    Fit(
        constants="prefill_gap, eager_op, arrival",
        profile="sglang@0.5",
        rows="sample and graded rows of InferenceX on SGLang",
        saw=_engine("sglang") & _INFERENCEX,
    ),
    Fit(
        constants="prefill_gap, arrival",
        profile="vllm@0.11, 0.14, 0.19 (gap also 0.9)",
        rows="sample: InferenceX rows of vLLM",
        saw=_engine("vllm") & _INFERENCEX,
    ),
    Fit(
        constants="all-reduce of up to 4 MB on xGMI",
        profile="fabric xgmi-mi300x",
        rows="static batches of Llama 3.1 on MI300X in the ROCm tables, 289 rows",
        saw=pl.col("gpu").str.starts_with("MI300X") & _STATIC,
    ),
)


def seen(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of `frame` that any constant saw."""
    return frame.filter(_any())


def unseen(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of `frame` that no constant saw."""
    return frame.filter(~_any())


def _any() -> pl.Expr:
    return reduce(lambda a, b: a | b, (fit.saw.fill_null(value=False) for fit in FITS))
