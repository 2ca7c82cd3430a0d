"""Dense matrix products: projections, dense FFN, LM head; 16-bit, FP8, FP4, int8, weight-only."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dse.cost.kernels._terms import Kernel, Terms, balance, log, log_us, up
from dse.hardware.dtype import DType
from dse.hardware.gpu import GPU
from dse.model.ops import Gemm, Num

# Rows × columns of the output tiles that libraries choose from, small batches to large.
TILES = (
    (16, 64), (64, 64), (64, 128), (128, 128), (128, 192), (128, 256), (256, 128), (256, 256),
)  # fmt: skip

# Tiles whose grid decides whether a library splits k over idle SMs.
SPLIT_TILES = ((64, 64), (128, 128), (128, 256))
FEW_WAVES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmKernel(Kernel):
    """`m × k` activations by `k × n` weights."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "m", "n", "k", "flop_us", "hbm_us", "balance", "moved_per_l2", "tiles_per_sm",
        "pad_16", "aligned", *(f"waste_{rows}x{columns}" for rows, columns in TILES), "least_waste",
        *(f"{name}_{rows}x{columns}" for rows, columns in SPLIT_TILES for name in ("fill", "last")),
    )  # fmt: skip
    kind: Literal["gemm"] = "gemm"

    def variant(self, op: Gemm) -> str:
        return weight_format(op.weights, op.activations)

    def features(self, op: Gemm, needs: Terms, moved_bytes: Num, gpu: GPU) -> tuple[Num, ...]:
        m, n, k = op.m, op.n, op.k
        wastes = tuple(_waste(m, n, rows, columns, gpu) for rows, columns in TILES)
        return (
            log(m), log(n), log(k), log_us(needs.flop_s), log_us(needs.hbm_s), balance(needs),
            log(moved_bytes / gpu.l2_bytes),
            log(up(m, 128) * up(n, 128) / (128 * 128 * gpu.sm_count)), log(up(m, 16)) - log(m),
            np.where(np.mod(m, 8) == 0, 1.0, 0.0), *wastes, np.minimum.reduce(wastes),
            *(each for tile in SPLIT_TILES for each in _waves(m, n, *tile, gpu)),
        )  # fmt: skip


def weight_format(weights: DType, activations: DType) -> str:
    """Key of a pair of formats: the weights' own, `_wo` appended where only they are quantised."""
    name = DType.BF16 if weights is DType.FP16 else weights
    quantised = weights not in (DType.BF16, DType.FP16, DType.FP32)
    if quantised and activations.compute == "bf16":
        return f"{name}_wo"
    if weights.bytes_per_element < 0.9 and activations.compute == "fp8":
        return f"{name}_fp8"
    return str(name)


def _waves(m: Num, n: Num, rows: int, columns: int, gpu: GPU) -> tuple[Any, Any]:
    """How many waves of tiles there are, up to `FEW_WAVES`, and how full the last one is."""
    waves = np.ceil(np.divide(m, rows)) * np.ceil(np.divide(n, columns)) / gpu.sm_count
    return np.minimum(waves, FEW_WAVES), waves - np.floor(waves)


def _waste(m: Num, n: Num, rows: int, columns: int, gpu: GPU) -> Num:
    """Logarithm of computed over useful elements: padding of tiles times the last wave."""
    tiles = np.ceil(np.divide(m, rows)) * np.ceil(np.divide(n, columns))
    full = np.ceil(tiles / gpu.sm_count) * (gpu.sm_count * rows * columns)
    return log(full / np.maximum(m * n, 1.0))
