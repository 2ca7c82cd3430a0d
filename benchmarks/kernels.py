"""Kernel pricing speed: loading coefficients, and kernels priced per second on one core."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dse.catalog import Catalog
from dse.cost.kernels import _coefficients, kernel_model
from dse.hardware import DType
from dse.model.ops import ComputeOp, DecodeAttention, Gemm, GroupedGemm, PrefillAttention

N = 50_000
REPEATS = 5
BF16, FP8 = DType.BF16, DType.FP8


def grids() -> dict[str, ComputeOp]:
    """One op of each large family with `N` random shapes."""
    rng = np.random.default_rng(0)

    def draw(low: float, high: float) -> np.ndarray:
        return np.round(np.exp(rng.uniform(np.log(low), np.log(high), N)))

    heads: dict[str, Any] = {"n_heads": 32, "n_kv_heads": 8, "d_qk": 128, "d_v": 128, "kv": BF16}
    rows = draw(1, 32768)
    return {
        "gemm": Gemm(m=draw(1, 16384), n=4096, k=draw(512, 16384), weights=FP8, activations=FP8),
        "moe": GroupedGemm(
            tokens=rows, rows=rows, touched=np.minimum(rows, 32), n_experts=32, top_k=8,
            d_model=7168, d_ff=2048, gated=True, weights=FP8, activations=FP8,
        ),
        "prefill_attention": PrefillAttention(
            n_seqs=draw(1, 32), q_tokens=draw(16, 8192), cached_tokens=draw(1, 8192), **heads
        ),
        "decode_attention": DecodeAttention(
            n_seqs=draw(1, 512), q_tokens=1, context_tokens=draw(16, 65536), **heads
        ),
    }  # fmt: skip


def best(action: Callable[[], object]) -> float:
    """CPU seconds of the fastest of `REPEATS` calls (the machine may be shared)."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    gpu = Catalog.load().gpu("H200-SXM")
    grid = grids()
    code = (
        "import time; from dse.cost.kernels import _coefficients as c; s = time.process_time(); "
        "t = c.load('H200-SXM'); [x.head for x in t.slices]; print(time.process_time() - s)"
    )
    load_s = float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    )
    total = sum(path.stat().st_size for path in _coefficients.folder().glob("*.json"))
    print(f"load one GPU's table and every head: {load_s * 1e3:.1f} ms (target 50)")
    print(f"all kernel coefficients: {total / 1e6:.1f} MB (target 10)")
    print("| family | tier | kernels/s | target | ratio |\n|---|---|---|---|---|")
    for tier in ("target", "cross"):
        model = kernel_model(gpu, "vllm", tier)
        for family, op in grid.items():
            rate = N / best(partial(model.seconds, op))
            print(f"| {family} | {tier} | {rate:,.0f} | 500,000 | {rate / 5e5:.1f} |")


if __name__ == "__main__":
    main()
