"""Grouped GEMM / fused MoE: the routed experts of one layer on one rank."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.cost.kernels._terms import Kernel, Terms, balance, last_wave, log, log_us, up
from dse.cost.kernels.gemm import weight_format
from dse.hardware.gpu import GPU
from dse.model.ops import GroupedGemm, Num

TILE_ROWS = (8, 16, 64, 128)
FEWEST = 1e-3  # rows and touched experts are expectations and may be far below one


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemmKernel(Kernel):
    """Gate and up, activation, down of the touched experts."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "tokens", "rows", "touched", "local_experts", "rows_per_touched", "touched_share", "top_k",
        "d_model", "d_ff", "gated", "flop_us", "hbm_us", "balance", "rows_per_token",
        "moved_per_l2", *(f"pad_{rows}" for rows in TILE_ROWS), "tiles_16", "tiles_128",
        "last_wave",
    )  # fmt: skip
    kind: Literal["moe"] = "moe"

    def variant(self, op: GroupedGemm) -> str:
        return weight_format(op.weights, op.activations)

    def features(
        self, op: GroupedGemm, needs: Terms, moved_bytes: Num, gpu: GPU
    ) -> tuple[Num, ...]:
        rows, touched = np.maximum(op.rows, FEWEST), np.maximum(op.touched, FEWEST)
        each = rows / touched
        column_tiles = touched * up(op.d_ff, 128) / (128 * gpu.sm_count)
        return (
            log(op.tokens), log(rows), log(touched), log(op.n_experts), log(each),
            log(touched / op.n_experts), log(op.top_k), log(op.d_model), log(op.d_ff),
            float(op.gated), log_us(needs.flop_s), log_us(needs.hbm_s), balance(needs),
            log(rows) - log(op.tokens), log(moved_bytes / gpu.l2_bytes),
            *(log(up(each, tile) / each) for tile in TILE_ROWS),
            *(log(column_tiles * up(each, tile) / tile) for tile in (16, 128)),
            last_wave(column_tiles * gpu.sm_count * up(each, 128) / 128, gpu),
        )  # fmt: skip
