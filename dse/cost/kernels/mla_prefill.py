"""Unabsorbed multi-head latent attention, prefill: as attention with `d_qk` 192 and `d_v` 128."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.cost.kernels._terms import Kernel, Terms, balance, last_wave, log, log_us, up
from dse.cost.work import causal_pairs
from dse.hardware.gpu import GPU
from dse.model.ops import MLAPrefill, Num

QUERY_TILE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class MLAPrefillKernel(Kernel):
    """Every head has its own up-projected keys; sparse attention bounds the keys of a query."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "n_seqs", "q_tokens", "heads", "keys_per_query", "cached_share", "flop_us", "hbm_us",
        "soft_us", "balance", "moved_per_l2", "tiles_per_sm", "last_wave", "pad_128",
    )  # fmt: skip
    kind: Literal["mla_prefill"] = "mla_prefill"

    def variant(self, op: MLAPrefill) -> str:
        return "fp8" if op.kv.bytes_per_element < 1.5 else "bf16"

    def features(self, op: MLAPrefill, needs: Terms, moved_bytes: Num, gpu: GPU) -> tuple[Num, ...]:
        q, cached = np.maximum(op.q_tokens, 1.0), op.cached_tokens
        keys = causal_pairs(q, cached, op.selected_tokens) / q
        tiles = op.n_seqs * op.n_heads * up(q, QUERY_TILE) / QUERY_TILE
        return (
            log(op.n_seqs), log(q), log(op.n_heads), log(keys), cached / (cached + q),
            log_us(needs.flop_s), log_us(needs.hbm_s), log_us(needs.soft_s), balance(needs),
            log(moved_bytes / gpu.l2_bytes), log(tiles / gpu.sm_count), last_wave(tiles, gpu),
            log(up(q, QUERY_TILE) / q),
        )  # fmt: skip
