"""Work of single ops, by hand."""

import numpy as np
import pytest

from dse.cost.work import causal_pairs, compute_format, work
from dse.hardware.dtype import DType
from dse.model.ops import (
    DecodeAttention,
    Elementwise,
    Gemm,
    GroupedGemm,
    Indexer,
    LinearAttention,
    MLADecode,
    MLAPrefill,
    PrefillAttention,
)
from tests import worlds

BF16 = {"weights": DType.BF16, "activations": DType.BF16}


def test_gemm():
    found = work(Gemm(m=2, n=3, k=5, **BF16))
    assert (found.flop, found.hbm_bytes) == (60, 30)
    assert found.activation_bytes == 2 * 5 * 2 + 2 * 3 * 2
    assert work(Gemm(m=0, n=3, k=5, **BF16)).hbm_bytes == 0


def test_grouped_gemm_reads_touched_experts_only():
    op = GroupedGemm(
        tokens=4, rows=8, touched=3, n_experts=16, top_k=2, d_model=10, d_ff=7, gated=True, **BF16
    )
    assert work(op).hbm_bytes == 3 * (3 * 10 * 7) * 2
    assert work(op).flop == 2 * 8 * 3 * 10 * 7


def test_decode_attention():
    op = DecodeAttention(
        n_seqs=2, q_tokens=1, context_tokens=100, n_heads=8, n_kv_heads=4, d_qk=16, d_v=16,
        kv=DType.BF16,
    )  # fmt: skip
    found = work(op)
    assert found.flop == 4 * 200 * 8 * 16
    assert found.hbm_bytes == 200 * 4 * 32 * 2
    assert found.sfu_ops == 200 * 8


def test_latent_decode_absorbs_the_up_projections():
    op = MLADecode(
        n_seqs=1, q_tokens=1, context_tokens=10, n_heads=128, d_latent=512, d_rope=64,
        bytes_per_token=1152, kv=DType.BF16,
    )  # fmt: skip
    assert work(op).flop == 2 * 10 * 128 * (2 * 512 + 64)
    assert work(op).hbm_bytes == 10 * 1152


def test_latent_prefill_is_unabsorbed():
    op = MLAPrefill(
        n_seqs=1, q_tokens=10, cached_tokens=0, n_heads=2, d_qk=192, d_v=128, kv=DType.FP8
    )
    assert work(op).flop == 2 * 2 * 50 * (192 + 128)
    assert work(op).compute == "bf16"


@pytest.mark.parametrize(
    ("new", "cached", "limit", "pairs"),
    [(10, 0, None, 50), (10, 5, None, 100), (10, 0, 4, 32), (4, 100, 4, 16), (10, 0, 100, 50)],
)
def test_causal_pairs(new, cached, limit, pairs):
    # T·P + T²/2; with a window w: w²/2 + w·(T − w) from the start.
    assert causal_pairs(new, cached, limit) == pairs


def test_prefill_chunks_add_up():
    def flop(new, cached):
        op = PrefillAttention(
            n_seqs=1, q_tokens=new, cached_tokens=cached, n_heads=4, n_kv_heads=2, d_qk=8, d_v=8,
            kv=DType.BF16, window_tokens=30,
        )  # fmt: skip
        return work(op).flop

    assert flop(100, 0) == pytest.approx(flop(60, 0) + flop(40, 60))


def test_indexer_scores_every_key():
    found = work(Indexer(pairs=1000, n_heads=64, d_head=128, key_bytes=132_000))
    assert (found.flop, found.hbm_bytes, found.compute) == (2 * 1000 * 64 * 128, 132_000, "fp8")


def test_recurrent_state_is_read_and_written():
    op = LinearAttention(
        n_seqs=3, tokens=3, state_bytes=1000, flop_per_token=50, activation_bytes_per_token=7
    )
    assert (work(op).hbm_bytes, work(op).flop, work(op).activation_bytes) == (6000, 150, 21)


def test_activations_stay_in_l2_until_they_do_not_fit():
    on = worlds.gpu(l2_bytes=1000.0)
    small, large = (work(Elementwise(name="norm", n_bytes=n)) for n in (900, 1100))
    assert (small.bytes_on(on), large.bytes_on(on)) == (0, 1100)
    written = work(Elementwise(name="kv_write", n_bytes=900))
    assert written.bytes_on(on) == 900


def test_weight_only_formats_compute_in_sixteen_bits():
    assert compute_format(DType.FP8, DType.FP8) == "fp8"
    assert compute_format(DType.NVFP4, DType.BF16) == "bf16"
    assert compute_format(DType.INT4, DType.BF16) == "bf16"


def test_arrays_broadcast():
    found = work(Gemm(m=np.array([1.0, 2.0]), n=3, k=5, **BF16))
    assert list(found.flop) == [30, 60]
