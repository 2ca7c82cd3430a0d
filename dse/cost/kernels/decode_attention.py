"""Attention of one decode step on a paged KV cache: split over the context (flash decoding)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.cost.kernels._terms import (
    TINY,
    WINDOWED,
    Kernel,
    Terms,
    balance,
    last_wave,
    log,
    log_us,
    up,
)
from dse.hardware.gpu import GPU
from dse.model.ops import DecodeAttention, Num

ROW_TILE = 64  # query heads of a group share one tile of this height
KEY_TILE = 128
WAVE_KEYS = 256

# TensorRT-LLM takes other kernels for one query head a KV head, for more than 32 (each head then
# reads the cache by itself: up to 30 times the time) and for small heads.
MOST_SHARED, SMALL_HEAD = 32, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttentionKernel(Kernel):
    """Reads every cached key and value once; a group of query heads shares them."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "n_seqs", "q_tokens", "kv_heads", "group", "context", "d_qk", "flop_us", "hbm_us",
        "balance", "tiles_per_sm", "last_wave", "cached_tokens", "blocks_per_sm", "moved_per_l2",
        "pad_16", "unshared", "one_each", "small_head", "splits", "context_per_split",
        "last_wave_split", "kv_tiles_per_sm", "last_wave_kv",
    )  # fmt: skip
    kind: Literal["decode_attention"] = "decode_attention"

    def variant(self, op: DecodeAttention) -> str:
        narrow = "fp8" if op.kv.bytes_per_element < 1.5 else "bf16"
        return f"{narrow}{WINDOWED}" if op.windowed else narrow

    def features(
        self, op: DecodeAttention, needs: Terms, moved_bytes: Num, gpu: GPU
    ) -> tuple[Num, ...]:
        sharing = op.n_heads / op.n_kv_heads
        group = sharing * op.q_tokens
        tiles = op.n_seqs * op.n_kv_heads * up(group, ROW_TILE) / ROW_TILE
        blocks = tiles * up(op.context_tokens, KEY_TILE) / KEY_TILE
        most = np.maximum(np.ceil(np.divide(op.context_tokens, KEY_TILE)), 1.0)
        splits = np.clip(gpu.sm_count / np.maximum(tiles, TINY), 1.0, most)
        per_head = np.multiply(op.n_seqs, op.n_kv_heads)
        return (
            log(op.n_seqs), log(op.q_tokens), log(op.n_kv_heads), log(group),
            log(op.context_tokens), log(op.d_qk), log_us(needs.flop_s), log_us(needs.hbm_s),
            balance(needs), log(tiles / gpu.sm_count), last_wave(tiles, gpu),
            log(op.n_seqs * op.context_tokens), log(blocks / gpu.sm_count),
            log(moved_bytes / gpu.l2_bytes), log(up(group, 16) / group),
            np.where(sharing > MOST_SHARED, 1.0, 0.0), np.where(sharing <= 1, 1.0, 0.0),
            np.where(op.d_qk <= SMALL_HEAD, 1.0, 0.0), log(splits), log(op.context_tokens / splits),
            last_wave(tiles * up(op.context_tokens, WAVE_KEYS) / WAVE_KEYS, gpu),
            log(per_head / gpu.sm_count), last_wave(per_head, gpu),
        )  # fmt: skip
