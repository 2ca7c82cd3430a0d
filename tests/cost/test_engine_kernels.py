"""Kernels as an engine runs them: attention on vector units, scales computed on the fly."""

from dataclasses import replace

import pytest

from dse.catalog import Catalog
from dse.cost.engine_kernels import LAUNCH_S, as_engine_runs
from dse.cost.kernels import kernel_model
from dse.hardware import DType
from dse.model.ops import DecodeAttention, Gemm
from dse.serving.engine import VectorAttention

RULE = VectorAttention(
    grouped_heads=(8,), grouped_d_heads=(128,), elements_per_clock=10.0, hbm_share=0.8
)
GPU = Catalog.load().gpu("a100-sxm")
INNER = kernel_model(GPU, "trtllm")
ENGINE = replace(Catalog.load().engine("trtllm@1.1"), vector_attention=RULE)
KERNELS = as_engine_runs(INNER, GPU, ENGINE)


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
    assert as_engine_runs(floor, GPU, ENGINE) is floor
    assert as_engine_runs(INNER, GPU, replace(ENGINE, vector_attention=None)) is INNER
    assert KERNELS.physics_id != INNER.physics_id


def test_scales_on_the_fly_take_a_launch_and_the_bytes_of_the_input() -> None:
    """An H100: 16,384 rows of 4,096 elements of 2 B at 0.85 of 3.35 TB/s, after 7 µs."""
    gpu = Catalog.load().gpu("h100-sxm")
    inner = kernel_model(gpu, "trtllm")
    scaled = as_engine_runs(inner, gpu, replace(ENGINE, vector_attention=None, scale_pass_s=7e-6))
    few, many, none = (
        Gemm(m=m, n=4096, k=4096, weights=DType.FP8, activations=DType.FP8) for m in (1, 16_384, 0)
    )
    assert scaled.seconds(few) - inner.seconds(few) == pytest.approx(7e-6, rel=1e-2)
    streamed = 16_384 * 4096 * 2 / (0.85 * 3.35e12)
    assert scaled.seconds(many) - inner.seconds(many) == pytest.approx(7e-6 + streamed, rel=1e-2)
    assert scaled.seconds(none) == 0.0
    for weights, activations in ((DType.BF16, DType.BF16), (DType.FP8_BLOCK, DType.FP8)):
        other = Gemm(m=1, n=4096, k=4096, weights=weights, activations=activations)
        assert scaled.seconds(other) == inner.seconds(other)
