"""H20 and H800, of which no fit saw a row: GEMM and attention within 12% (median)."""

from pathlib import Path

import numpy as np
import pytest

from dse.catalog import Catalog
from dse.cost.kernels import kernel_model
from dse.evidence.infersim import MeasuredOp, read_infersim
from dse.hardware.dtype import DType
from dse.model.ops import DecodeAttention, Elementwise, Gemm

GPUS = {"H20": "H20-96GB", "H800": "H800"}
BUSY_S = 20e-6
ATTENTION = ("prefill_attention", "decode_attention", "mla_decode", "mla_prefill")


@pytest.fixture(scope="module")
def rows(measured_data: Path) -> list[MeasuredOp]:
    return list(read_infersim(measured_data / "truth" / "kernels_gemm_attn_moe.csv"))


def errors(rows: list[MeasuredOp], families: tuple[str, ...], busy: bool) -> np.ndarray:
    catalog = Catalog.load()
    models = {
        name: kernel_model(catalog.gpu(entry), ("sglang", "vllm"), "cross")
        for name, entry in GPUS.items()
    }
    found = []
    for row in rows:
        model = models[row.gpu]
        if row.op.family in families and (not busy or model.roofline_seconds(row.op) >= BUSY_S):
            found.append(abs(row.priced_s(model) / row.seconds - 1.0))
    return np.array(found)


@pytest.mark.parametrize(
    ("families", "busy", "least_rows"),
    [
        (("gemm", *ATTENTION), False, 1200),
        (("gemm",), True, 300),
        (ATTENTION, False, 700),
        (("mla_decode", "mla_prefill"), True, 70),
    ],
)
def test_unseen_hopper_parts(
    rows: list[MeasuredOp], families: tuple[str, ...], busy: bool, least_rows: int
) -> None:
    found = errors(rows, families, busy)
    assert len(found) >= least_rows
    assert np.median(found) <= 0.12


@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_each_gpu_s_gemm(rows: list[MeasuredOp], gpu: str) -> None:
    found = errors([row for row in rows if row.gpu == gpu], ("gemm",), busy=False)
    assert len(found) >= 100
    assert np.median(found) <= 0.12


def test_a_gemm_timed_alone_is_priced_without_the_conversion_of_its_input() -> None:
    """8,192 x 65,536 values read in 16 bits and written in 8 take at least 3 bytes each of HBM."""
    gpu = Catalog.load().gpu("H800")
    model = kernel_model(gpu, ("sglang",), "cross")
    wide = Gemm(m=8192.0, n=128.0, k=65536.0, weights=DType.FP8_BLOCK, activations=DType.FP8)
    row = MeasuredOp(gpu="H800", group="gemm", op=wide, seconds=195e-6)
    least = 3.0 * 8192.0 * 65536.0 / gpu.hbm_bytes_per_s
    assert row.priced_s(model) <= model.seconds(wide) - least
    assert row.priced_s(model) >= model.roofline_seconds(wide)


def test_the_price_alone_never_falls_below_the_roofline() -> None:
    """A conversion dearer than the whole leaves the roofline, not a negative time."""

    class Peaks:
        def seconds(self, op: object) -> float:
            return 5e-6 if isinstance(op, Elementwise) else 4e-6

        def roofline_seconds(self, op: object) -> float:
            return 3e-6

    small = Gemm(m=8.0, n=512.0, k=512.0, weights=DType.FP8_BLOCK, activations=DType.FP8)
    row = MeasuredOp(gpu="H20", group="gemm", op=small, seconds=4e-6)
    assert row.priced_s(Peaks()) == 3e-6  # type: ignore[arg-type]


def test_attention_is_priced_as_it_is() -> None:
    model = kernel_model(Catalog.load().gpu("H20-96GB"), ("sglang",), "cross")
    op = DecodeAttention(
        n_seqs=16.0, q_tokens=1.0, context_tokens=4096.0, n_heads=32.0, n_kv_heads=4.0,
        d_qk=128.0, d_v=128.0, kv=DType.BF16,
    )  # fmt: skip
    row = MeasuredOp(gpu="H20", group="decode_attention", op=op, seconds=1e-4)
    assert row.priced_s(model) == model.seconds(op)


def test_nothing_measured_beats_its_roofline(rows: list[MeasuredOp]) -> None:
    catalog = Catalog.load()
    models = {n: kernel_model(catalog.gpu(g), tier="roofline") for n, g in GPUS.items()}
    for row in rows:
        assert models[row.gpu].seconds(row.op) <= row.seconds
