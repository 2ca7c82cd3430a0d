"""Absorbed multi-head latent attention, decode (DeepSeek-V2, arXiv:2405.04434; FlashMLA)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.cost.kernels._terms import Kernel, Terms, balance, last_wave, log, log_us, up
from dse.hardware.gpu import GPU
from dse.model.ops import MLADecode, Num

ROW_TILE = 64
KEY_TILE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MLADecodeKernel(Kernel):
    """All heads share one latent per token: read once, used as key and as value."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "n_seqs", "q_tokens", "heads", "context", "flop_us", "hbm_us", "balance", "tiles_per_sm",
        "last_wave", "blocks_per_sm", "moved_per_l2", "pad_64", "pad_128",
    )  # fmt: skip
    kind: Literal["mla_decode"] = "mla_decode"

    def variant(self, op: MLADecode) -> str:
        return "fp8" if op.kv.bytes_per_element < 1.5 else "bf16"

    def features(self, op: MLADecode, needs: Terms, moved_bytes: Num, gpu: GPU) -> tuple[Num, ...]:
        rows = np.maximum(np.multiply(op.n_heads, op.q_tokens), 1e-3)
        tiles = op.n_seqs * up(rows, ROW_TILE) / ROW_TILE
        blocks = tiles * up(op.context_tokens, KEY_TILE) / KEY_TILE
        return (
            log(op.n_seqs), log(op.q_tokens), log(op.n_heads), log(op.context_tokens),
            log_us(needs.flop_s), log_us(needs.hbm_s), balance(needs), log(tiles / gpu.sm_count),
            last_wave(tiles, gpu), log(blocks / gpu.sm_count), log(moved_bytes / gpu.l2_bytes),
            log(up(rows, 64) / rows), log(up(rows, 128) / rows),
        )  # fmt: skip
