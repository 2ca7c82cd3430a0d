"""H20 and H800, of which no fit saw a row: GEMM and attention within 12% (median)."""

from pathlib import Path

import numpy as np
import pytest

from dse.catalog import Catalog
from dse.cost.kernels import kernel_model
from dse.evidence.infersim import MeasuredOp, read_infersim

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
            found.append(abs(float(model.seconds(row.op)) / row.seconds - 1.0))
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


def test_nothing_measured_beats_its_roofline(rows: list[MeasuredOp]) -> None:
    catalog = Catalog.load()
    models = {n: kernel_model(catalog.gpu(g), tier="roofline") for n, g in GPUS.items()}
    for row in rows:
        assert models[row.gpu].seconds(row.op) <= row.seconds
