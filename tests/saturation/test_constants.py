"""Constants as a kernel model: never below the roofline, and read back as written."""

from dataclasses import replace

import numpy as np
import pytest

from dse.base.errors import SourceError
from dse.hardware import DType
from dse.model.ops import DecodeAttention, Gemm
from dse.saturation.constants import ConstantKernels, read_fit, shipped_fit
from tests import worlds
from tests.saturation.worlds import FREE

GEMM = Gemm(m=1, n=1000, k=1000, weights=DType.BF16, activations=DType.BF16)
SCAN = DecodeAttention(
    n_seqs=10, q_tokens=1, context_tokens=1000, n_heads=8, n_kv_heads=8, d_qk=64, d_v=64,
    kv=DType.BF16,
)  # fmt: skip

FIT = """\
gpu: unit
engine: "unit@0"
constants:
  weight_efficiency: 0.9
  kv_efficiency: 80%
  compute_efficiency: 0.7
  launch: 5 us
  step: 1 ms
  request: 20 us
  prefill_layer: 0.2 ms
  pool_use: 0.9
intervals:
  launch_s: {low: 4.0e-6, high: 6.0e-6}
n_rows: 12
rows: made for tests
residual_quantiles: {"0.5": 0.0}
tpot_quantiles: {"0.5": 0.0}
mape: 0.02
median_ape: 0.01
date: "2026-01-01"
source: worlds
"""


def seconds(op, **changes):
    return ConstantKernels(gpu=worlds.gpu(), constants=replace(FREE, **changes)).seconds(op)


def test_each_efficiency_prices_its_own_ops():
    assert seconds(GEMM) == pytest.approx(2e6 / 1e12, rel=1e-3)
    assert seconds(GEMM, weight_efficiency=0.5) == pytest.approx(4e6 / 1e12, rel=1e-3)
    assert seconds(GEMM, kv_efficiency=0.5) == seconds(GEMM)
    stored = 10 * 1000 * 8 * 128 * 2
    assert seconds(SCAN) == pytest.approx(stored / 1e12, rel=1e-3)
    assert seconds(SCAN, kv_efficiency=0.5) == pytest.approx(2 * stored / 1e12, rel=1e-3)
    assert seconds(SCAN, weight_efficiency=0.5) == seconds(SCAN)
    assert seconds(SCAN, launch_s=1e-3) == pytest.approx(1e-3 + seconds(SCAN))


def test_arithmetic_takes_over_on_many_rows():
    many = replace(GEMM, m=1e6)
    assert seconds(many) == pytest.approx(2e12 / 1e14, rel=0.05)
    assert seconds(many, compute_efficiency=0.5) == pytest.approx(2 * 2e12 / 1e14, rel=0.05)


def test_never_faster_than_the_roofline():
    kernels = ConstantKernels(gpu=worlds.gpu(), constants=FREE)
    op = replace(GEMM, m=np.logspace(0, 6, 50))
    assert np.all(kernels.seconds(op) >= kernels.roofline_seconds(op))


def test_a_fit_reads_back(tmp_path):
    path = tmp_path / "fit.yaml"
    path.write_text(FIT, encoding="utf-8")
    fit = read_fit(path)
    assert fit.constants.launch_s == pytest.approx(5e-6)
    assert fit.constants.kv_efficiency == 0.8
    assert fit.intervals["launch_s"].level == 0.8


def test_a_share_above_one_is_refused(tmp_path):
    path = tmp_path / "fit.yaml"
    path.write_text(FIT.replace("0.9\n  kv", "1.9\n  kv"), encoding="utf-8")
    with pytest.raises(SourceError, match="weight_efficiency"):
        read_fit(path)


def test_no_fit_for_an_unknown_gpu():
    assert shipped_fit("abacus", "vllm@0.6") is None
