"""Causal attention of prompt chunks: FlashAttention-style kernels (Dao 2023, arXiv:2307.08691)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.cost.kernels._terms import Kernel, Terms, balance, last_wave, log, log_us, up
from dse.cost.work import causal_pairs
from dse.hardware.gpu import GPU
from dse.model.ops import Num, PrefillAttention

QUERY_TILE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillAttentionKernel(Kernel):
    """Scores and values over the causal (and windowed) pairs, one exponential per pair and head."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "n_seqs", "q_tokens", "heads", "group", "d_qk", "keys_per_query", "cached_share",
        "windowed", "flop_us", "hbm_us", "soft_us", "balance", "soft_balance", "moved_per_l2",
        "tiles_per_sm", "last_wave", "pad_128",
    )  # fmt: skip
    kind: Literal["prefill_attention"] = "prefill_attention"

    def variant(self, op: PrefillAttention) -> str:
        return "fp8" if op.kv.bytes_per_element < 1.5 else "bf16"

    def features(
        self, op: PrefillAttention, needs: Terms, moved_bytes: Num, gpu: GPU
    ) -> tuple[Num, ...]:
        q, cached = np.maximum(op.q_tokens, 1.0), op.cached_tokens
        keys = causal_pairs(q, cached, op.window_tokens) / q
        tiles = op.n_seqs * op.n_heads * up(q, QUERY_TILE) / QUERY_TILE
        return (
            log(op.n_seqs), log(q), log(op.n_heads), log(op.n_heads / op.n_kv_heads), log(op.d_qk),
            log(keys), cached / (cached + q), log(keys / (cached + q / 2.0)),
            log_us(needs.flop_s), log_us(needs.hbm_s), log_us(needs.soft_s), balance(needs),
            log_us(needs.soft_s) - log_us(needs.flop_s), log(moved_bytes / gpu.l2_bytes),
            log(tiles / gpu.sm_count), last_wave(tiles, gpu), log(up(q, QUERY_TILE) / q),
        )  # fmt: skip
