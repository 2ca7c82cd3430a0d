"""Decode attention without tensor cores: keys are read for each query head, from L2 or HBM."""

import pytest

from dse.catalog import Catalog
from dse.cost.kernels import kernel_model
from dse.cost.vector_attention import LAUNCH_S, as_engine_runs
from dse.hardware import DType
from dse.model.ops import DecodeAttention, Gemm
from dse.serving.engine import VectorAttention

RULE = VectorAttention(
    grouped_heads=(8,), grouped_d_heads=(128,), elements_per_clock=10.0, hbm_share=0.8
)
GPU = Catalog.load().gpu("a100-sxm")
INNER = kernel_model(GPU, "trtllm")
KERNELS = as_engine_runs(INNER, GPU, RULE)


def attention(n_heads: int, n_kv_heads: int, d_head: int = 128) -> DecodeAttention:
    return DecodeAttention(
        n_seqs=100, q_tokens=1, context_tokens=1000, n_heads=n_heads, n_kv_heads=n_kv_heads,
        d_qk=d_head, d_v=d_head, kv=DType.BF16,
    )  # fmt: skip


def test_heads_of_the_grouped_kernel_are_priced_as_measured() -> None:
    op = attention(32, 4)
    assert KERNELS.seconds(op) == INNER.seconds(op)
    gemm = Gemm(m=1, n=4096, k=4096, weights=DType.BF16, activations=DType.BF16)
    assert KERNELS.seconds(gemm) == INNER.seconds(gemm)


def test_without_sharing_hbm_is_the_limit() -> None:
    """100 · 1,000 tokens, 32 heads, 2 · 128 elements of 2 B: 1.64 GB at 0.8 of 2.039 TB/s."""
    seconds = 1.6384e9 / (0.8 * 2.039e12)
    assert KERNELS.seconds(attention(32, 32)) == pytest.approx(seconds + LAUNCH_S, rel=1e-3)


def test_query_heads_that_share_a_key_read_it_each_for_itself() -> None:
    """8.19e8 elements over 10 a clock, 108 SMs and 1.41 GHz: 0.54 ms, whatever is shared."""
    seconds = 8.192e8 / (10 * 108 * 1.41e9)
    four, all_of_them = KERNELS.seconds(attention(32, 8)), KERNELS.seconds(attention(32, 1))
    assert four == all_of_them == pytest.approx(seconds + LAUNCH_S, rel=1e-3)


def test_wider_heads_than_the_grouped_kernel_knows_go_the_same_way() -> None:
    assert KERNELS.seconds(attention(32, 4, 64)) != INNER.seconds(attention(32, 4, 64))


def test_nothing_is_read_in_no_time() -> None:
    empty = DecodeAttention(
        n_seqs=0, q_tokens=1, context_tokens=1000, n_heads=32, n_kv_heads=8, d_qk=128, d_v=128,
        kv=DType.BF16,
    )  # fmt: skip
    assert KERNELS.seconds(empty) == 0.0


def test_peaks_stay_peaks_and_other_engines_their_own() -> None:
    floor = kernel_model(GPU, "trtllm", "roofline")
    assert as_engine_runs(floor, GPU, RULE) is floor
    assert as_engine_runs(INNER, GPU, None) is INNER
    assert KERNELS.physics_id != INNER.physics_id
