"""Kernel evidence: readers, routing, the fit and its scores."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dse.base.errors import UserError
from dse.cost.kernels._coefficients import read
from dse.cost.kernels._head import Head
from dse.evidence import silicon
from dse.evidence.calibrate_kernels import (
    Excluded,
    SliceFit,
    calibrate_table,
    fit_slice,
    interval,
    samples_of,
    split,
)
from dse.evidence.fit_head import FitSettings, Samples, _gradient, _start, fit, mix, predict
from dse.evidence.kernel_table import read_kernel_table
from dse.evidence.kernels import READERS, Slice
from dse.evidence.routing import expert_load
from dse.evidence.validate_kernels import Scored, score, take
from dse.hardware import GPU, DType
from dse.model.ops import Gemm
from tests import worlds


@pytest.fixture(scope="module")
def installed() -> Path:
    folder = silicon.root()
    if folder is None:
        pytest.skip("the silicon database (extra `silicon`) is not installed")
    return folder


@pytest.fixture(scope="module")
def h100() -> GPU:
    return worlds.gpu(
        name="H100-SXM", architecture="hopper", hbm_bytes_per_s=3.35e12,
        peak_flop_per_s={"bf16": 989.4e12, "fp8": 1978.9e12}, sm_count=132,
    )  # fmt: skip


def world_slice(seconds: Any = None, m: Any = None) -> Slice:
    """GEMMs of a world where a kernel takes 3 µs and 1.6 times its roofline."""
    rng = np.random.default_rng(3)
    rows = np.exp(rng.uniform(0, 9, 900)).round() if m is None else m
    n = rng.choice([1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 3072.0], len(rows))
    op = Gemm(m=rows, n=n, k=np.full(len(rows), 4096.0), weights=DType.BF16, activations=DType.BF16)
    part = Slice(
        family="gemm", gpu="unit", engine="vllm", version="1", implementation="made",
        compute="bf16", op=op, seconds=np.ones(len(rows)), group=n.astype(np.int64),
        cohort=np.zeros(len(rows), dtype=np.int64), usable=np.ones(len(rows), dtype=bool),
    )  # fmt: skip
    took = 3e-6 + 1.6 * samples_of(part, worlds.gpu()).roofline_s if seconds is None else seconds
    return dataclasses.replace(part, seconds=took)


def test_the_database_is_found_and_never_imported(installed: Path) -> None:
    assert (installed / "h100_sxm").is_dir()
    found = silicon.tables("gemm")
    assert {table.gpu for table in found} >= {"H100-SXM", "B200-SXM"}
    assert found[0].scan().collect_schema().names()
    assert silicon.PACKAGE not in sys.modules


def test_one_table_a_gpu_and_engine_the_newest_full_one(installed: Path) -> None:
    chosen = silicon.tables("moe")
    keys = [(table.gpu, table.engine) for table in chosen]
    assert len(keys) == len(set(keys))
    every = silicon.tables("moe", every_version=True)
    for table in chosen:
        rivals = [t.n_rows for t in every if (t.gpu, t.engine) == (table.gpu, table.engine)]
        assert table.n_rows >= max(rivals) / 2


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silicon, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"dse\[silicon\]"):
        silicon.tables("gemm")


def test_readers_yield_ops_that_price(installed: Path, h100: GPU) -> None:
    """Every family's first H100 slice: as many limits as rows, positive times."""
    for family, reader in READERS.items():
        part = next(reader.slices(("H100-SXM",)))
        samples = samples_of(part, h100)
        assert part.family == family
        assert len(samples) == len(part.seconds) >= 500
        assert (samples.seconds > 0).all()
        assert np.isfinite(samples.features).all()


def test_a_measured_slice_is_fitted_within_the_target(installed: Path, h100: GPU) -> None:
    part = next(s for s in READERS["mla_decode"].slices(("H100-SXM",)) if s.engine == "trtllm")
    found = fit_slice(part, h100)
    assert isinstance(found, SliceFit)
    error = np.abs(found.ratio - 1.0)
    assert np.median(error) < 0.05
    assert not set(found.held_out.group) & set(part.group[~split(part.group)])


def test_balanced_routing_by_hand() -> None:
    """One token, 8 of 256: one expert on each of eight ranks, so one row on rank 0 of 8; 256 tokens
    give every expert eight rows."""
    load = expert_load(
        tokens=np.array([1.0, 256.0]), n_experts=np.array([256.0, 256.0]),
        top_k=np.array([8.0, 8.0]), ep=np.array([8.0, 8.0]), distribution=["balanced"] * 2,
    )  # fmt: skip
    assert load.rows.tolist() == [1.0, 256.0]
    assert load.touched.tolist() == [1.0, 32.0]


def test_skewed_routing_loads_the_timed_rank_more() -> None:
    def rows(distribution: str, ep: float) -> float:
        load = expert_load(
            tokens=np.array([4096.0]), n_experts=np.array([128.0]), top_k=np.array([8.0]),
            ep=np.array([ep]), distribution=[distribution],
        )  # fmt: skip
        assert load.touched[0] <= 128.0 / ep
        return float(load.rows[0])

    assert rows("power_law_1.2", 1.0) == pytest.approx(4096 * 8, rel=0.01)
    assert rows("power_law_1.2", 8.0) > 1.3 * rows("balanced", 8.0)


def test_the_gradient_is_the_losss() -> None:
    """Central differences agree with the analytic gradient of every layer."""
    rng = np.random.default_rng(0)
    layers = [layer.astype(float) for layer in _start(3, FitSettings(hidden=(4, 4)), rng)]
    inputs, needs = rng.normal(size=(20, 3)), np.exp(rng.normal(size=(20, 3)))
    target = rng.normal(size=20) + 2.0

    def loss() -> float:
        hidden = np.tanh(np.tanh(inputs @ layers[0] + layers[1]) @ layers[2] + layers[3])
        error = np.log(mix(needs * 1e-6, hidden @ layers[4] + layers[5]) * 1e6) - target
        huber = 0.3
        small = np.abs(error) < huber
        return float(
            np.where(small, error**2 / (2 * huber), np.abs(error) - huber / 2).sum() / len(target)
        )

    gradient = _gradient(layers, inputs, needs, target, 0.3)
    for layer, slope in zip(layers, gradient, strict=True):
        at = tuple(0 for _ in layer.shape)
        kept = layer[at]
        layer[at] = kept + 1e-5
        above = loss()
        layer[at] = kept - 1e-5
        below = loss()
        layer[at] = kept
        assert slope[at] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-8)


def test_the_fit_recovers_a_simple_world() -> None:
    part = world_slice()
    found = fit_slice(part, worlds.gpu())
    assert isinstance(found, SliceFit)
    assert np.median(np.abs(found.ratio - 1.0)) < 0.02
    low, high = interval(found.ratio)
    assert 0.9 < low < 1.01 < high + 0.02 < 1.12


def test_a_fit_is_repeatable_and_ignores_a_feature_that_never_varies() -> None:
    part = world_slice()
    samples = samples_of(part, worlds.gpu())
    quick = FitSettings(hidden=(4, 4), steps=50, networks=2)
    one, two = fit(samples, quick), fit(samples, quick)
    for a, b in zip((*one.layers, *one.others[0]), (*two.layers, *two.others[0]), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(one.layers[0], one.others[0][0]), "another seed"
    constant = samples.features.std(axis=0) < 1e-6
    assert constant.any()
    assert not one.layers[0][constant].any()
    assert predict(one, samples).shape == samples.seconds.shape


def test_decay_shrinks_what_the_rows_do_not_ask_for() -> None:
    samples = samples_of(world_slice(), worlds.gpu())
    free = fit(samples, FitSettings(hidden=(4, 4), steps=300))
    held = fit(samples, FitSettings(hidden=(4, 4), steps=300, decay=1.0))
    assert np.abs(held.layers[2]).sum() < 0.8 * np.abs(free.layers[2]).sum()


def test_impossible_rows_are_dropped_and_host_bound_sweeps_excluded() -> None:
    part = world_slice()
    seconds = part.seconds.copy()
    seconds[:7] = 1e-9
    found = fit_slice(dataclasses.replace(part, seconds=seconds), worlds.gpu())
    assert isinstance(found, SliceFit)
    assert found.n_beat_roofline == 7
    slow = dataclasses.replace(part, seconds=part.seconds + 3e-4)
    left_out = fit_slice(slow, worlds.gpu())
    assert isinstance(left_out, Excluded)
    assert "host-bound" in left_out.rule


def test_scores_by_hand() -> None:
    """Four rows: 10% and 20% high, exact, 50% low; the interval 0.8-1.2 misses only the last."""
    rows = Scored(
        gpu="a", family="gemm", variant="bf16", engine="e", implementation="i", fallback=False,
        measured_s=np.array([1e-5, 1e-5, 1e-4, 1e-4]),
        predicted_s=np.array([1.1e-5, 1.2e-5, 1e-4, 0.5e-4]),
        roofline_s=np.array([5e-6, 5e-6, 5e-5, 4e-5]),
        transfer_s=np.array([np.nan, 2e-5, 1e-4, 1e-4]),
        low=np.full(4, 0.8), high=np.full(4, 1.2),
    )  # fmt: skip
    whole, busy = score([rows]), score([rows], busy=True)
    assert whole is not None
    assert busy is not None
    assert (whole.n_rows, busy.n_rows) == (4, 2)
    assert whole.median == pytest.approx(0.15)
    assert whole.mean == pytest.approx(0.2)
    assert whole.time_weighted == pytest.approx(5.3e-5 / 2.2e-4)
    assert whole.inside == 0.75
    assert whole.roofline_median == pytest.approx(0.5)
    assert whole.transfer_median == 0.0
    assert busy.median == pytest.approx(0.25)


def test_taking_rows_of_an_op_keeps_what_is_no_array() -> None:
    op = world_slice().op
    some = take(op, np.array([2, 5]))
    assert some.m.tolist() == [op.m[2], op.m[5]]
    assert some.weights is DType.BF16


def test_a_table_of_ones_own_becomes_coefficients(tmp_path: Path) -> None:
    part = world_slice()
    frame = pl.DataFrame(
        {
            "family": "gemm", "engine": "mine", "implementation": "kernel",
            "m": part.op.m, "n": part.op.n, "k": part.op.k, "weights": "bf16",
            "activations": "bf16", "latency_us": part.seconds * 1e6,
        }
    )  # fmt: skip
    frame.write_csv(tmp_path / "sweep.csv")
    gpu = worlds.gpu()
    [found] = read_kernel_table(tmp_path / "sweep.csv", gpu.name)
    assert found.seconds == pytest.approx(part.seconds)
    assert found.op.weights is DType.BF16
    said: list[str] = []
    calibrate_table(tmp_path / "sweep.csv", gpu, into=tmp_path, report=said.append)
    table = read(tmp_path / "unit.json")
    assert [s.engine for s in table.slices] == ["mine"]
    assert isinstance(table.slices[0].head, Head)
    assert "rows" in said[0]


def test_a_table_that_lacks_a_column_names_it(tmp_path: Path) -> None:
    pl.DataFrame({"family": ["gemm"], "engine": ["e"]}).write_csv(tmp_path / "bad.csv")
    with pytest.raises(UserError, match="implementation, latency_us"):
        list(read_kernel_table(tmp_path / "bad.csv", "unit"))
    frame = {"family": ["gemm"], "engine": ["e"], "implementation": ["i"], "latency_us": [1.0]}
    pl.DataFrame(frame).write_csv(tmp_path / "bad.csv")
    with pytest.raises(UserError, match="gemm needs column m"):
        list(read_kernel_table(tmp_path / "bad.csv", "unit"))


def test_samples_take_rows() -> None:
    samples = samples_of(world_slice(), worlds.gpu())
    assert isinstance(samples, Samples)
    assert len(samples.take(np.array([1, 2, 3]))) == 3


@pytest.mark.parametrize(
    ("row", "fault"),
    [("fast,64,8,8,bf16,bf16", "'fast' is no number"), ("20,64,8,8,bf17,bf16", "'bf17' is not")],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, row, fault):
    head = "family,engine,implementation,latency_us,m,n,k,weights,activations"
    path = tmp_path / "bad.csv"
    path.write_text(f"{head}\ngemm,vllm,cublas,20,64,8,8,bf16,bf16\ngemm,vllm,cublas,{row}\n")
    with pytest.raises(UserError, match=fault):
        list(read_kernel_table(path, "unit"))


@pytest.mark.parametrize("row", ["-3,64,8,8", "20,,8,8", "20,0,8,8", ",64,8,8", "nan,64,8,8"])
def test_rows_that_measure_nothing_are_refused_by_number(tmp_path, row):
    head = "family,engine,implementation,latency_us,m,n,k,weights,activations"
    path, good = tmp_path / "bad.csv", "gemm,vllm,cublas,20,64,8,8,bf16,bf16"
    path.write_text(f"{head}\n{good}\ngemm,vllm,cublas,{row},bf16,bf16\n{good}\n")
    with pytest.raises(UserError, match=r"1 rows without .*: 2 \(mend"):
        list(read_kernel_table(path, "unit"))
