"""Constants recovered from rows that a known deployment made, and the accuracy on measured ones."""

from dataclasses import replace

import numpy as np
import pytest

from dse.base.errors import UserError
from dse.catalog.catalog import Catalog
from dse.evidence.calibrate_saturation import (
    PRIORS,
    Sweep,
    fit_constants,
    fit_saturation,
    write_fit,
)
from dse.evidence.measurement import Measurement
from dse.evidence.sweep import SweepRow, sweep_rows
from dse.saturation.constants import Constants, read_fit
from tests import worlds

TRUTH = Constants(
    weight_efficiency=0.88,
    kv_efficiency=0.75,
    compute_efficiency=0.6,
    launch_s=7e-6,
    step_s=2e-3,
    request_s=5e-5,
    prefill_layer_s=2e-4,
    pool_use=0.95,
)
SHAPES = ((8, 1024, 4096), (16, 2048, 8192), (32, 4096, 11008))


def row(shape, cap, osl=1000):
    n, d, d_ff = shape
    model = worlds.dense(
        f"m{n}", n=n, d=d, heads=d // 64, kv=d // 64, d_ff=d_ff, vocab=32000, d_head=64
    )
    by = worlds.engine(max_num_seqs=cap, max_num_batched_tokens=1024)
    measured = Measurement(
        line=1, model=model.name, gpu="unit", isl_tokens=500, osl_tokens=osl, concurrency=cap,
        source=worlds.SOURCE,
    )  # fmt: skip
    return SweepRow(
        measured=measured,
        deployment=worlds.deployment(model, by=by, kv_pool_bytes=60e9),
        concurrency=1000.0,
        n_requests=1000.0,
    )


def measured_rows(noise=0.0):
    """Rows as `TRUTH` makes them, with log-normal noise."""
    rows = [row(shape, cap) for shape in SHAPES for cap in (1, 4, 16, 64, 256)]
    found = Sweep.of(rows).predict(TRUTH)
    shaken = np.exp(noise * np.random.default_rng(0).standard_normal(len(rows)))
    return [
        replace(
            each,
            measured=replace(
                each.measured, output_tok_per_s=float(rate), tpot_s=float(tpot), tpot_stat="mean"
            ),
        )
        for each, rate, tpot in zip(
            rows, found.output_tok_per_s * shaken, found.tpot_s, strict=True
        )
    ]


def test_known_constants_come_back():
    rows = measured_rows()
    constants, intervals = fit_constants(rows)
    residuals = Sweep.of(rows).residuals(constants)
    assert np.max(np.abs(residuals)) < 0.03
    # What these rows determine must be found; the rest may stay with its prior.
    assert constants.step_s == pytest.approx(TRUTH.step_s, rel=0.1)
    assert constants.weight_efficiency == pytest.approx(TRUTH.weight_efficiency, rel=0.03)
    assert constants.kv_efficiency == pytest.approx(TRUTH.kv_efficiency, rel=0.08)
    for name, interval in intervals.items():
        assert interval.low < getattr(constants, name) <= interval.high


def test_what_rows_do_not_determine_keeps_its_prior():
    rows = [each for each in measured_rows() if each.measured.concurrency == 1]
    constants, intervals = fit_constants(rows)
    centre, width = PRIORS["pool_use"]
    assert constants.pool_use == pytest.approx(centre, rel=0.01)
    spread = np.log(intervals["kv_efficiency"].high / intervals["kv_efficiency"].low)
    tight = np.log(intervals["pool_use"].high / intervals["pool_use"].low)
    assert spread > 0.5 * 2 * 1.28 * PRIORS["kv_efficiency"][1]
    assert tight > 0.5 * 2 * 1.28 * width


def test_one_wild_row_moves_little():
    rows = measured_rows(noise=0.01)
    first = rows[0].measured
    wild = replace(first, output_tok_per_s=3 * (first.output_tok_per_s or 0.0))
    constants, _ = fit_constants([replace(rows[0], measured=wild), *rows[1:]])
    others = Sweep.of(rows).residuals(constants)[1 : len(rows)]
    assert np.mean(np.abs(others)) < 0.03


def test_a_fit_survives_its_file(tmp_path):
    fit = fit_saturation(measured_rows(), date="2026-01-01")
    write_fit(fit, tmp_path / "fit.yaml")
    again = read_fit(tmp_path / "fit.yaml")
    assert again.constants.vector() == pytest.approx(fit.constants.vector(), rel=1e-4)
    assert (again.gpu, again.engine, again.n_rows) == ("unit", "unit@0", 15)
    assert again.source == worlds.SOURCE
    assert set(again.intervals) == set(PRIORS)


def test_a_fit_is_of_one_gpu():
    rows = measured_rows()
    pool = rows[0].deployment.pools[0]
    other = replace(pool, gpu=replace(pool.gpu, name="other"))
    mixed = [replace(rows[0], deployment=replace(rows[0].deployment, pools=(other,))), *rows[1:]]
    with pytest.raises(UserError, match="mix"):
        fit_saturation(mixed, date="2026-01-01")


def test_no_rows_no_fit():
    with pytest.raises(UserError, match="no row"):
        Sweep.of([])


def measurement(**changes):
    given = {
        "line": 2, "model": "llama-2-7b", "gpu": "H100-64GB (a part)", "isl_tokens": 250.0,
        "osl_tokens": 131.0, "concurrency": 16, "framework": "vllm", "date": "2025-02-21",
        "n_gpus": 1, "tp": 1, "output_tok_per_s": 100.0,
        "precision_weights": "fp16/bf16 (dtype auto)",
        "load_mode": "2000 requests at once",
        "notes": "num_gpu_blocks=100 block_size=16; n=2000; prefix_caching=False; "
        "args: --enable-chunked-prefill --max-num-seqs=16",
    }  # fmt: skip
    return Measurement(**given | changes)


def test_a_row_becomes_its_deployment():
    (found,), skipped = sweep_rows([measurement()], Catalog.load())
    engine = found.deployment.pools[0].engine
    assert (engine.label, engine.max_num_seqs, engine.max_num_batched_tokens) == (
        "vllm@0.6", 16, 512,
    )  # fmt: skip
    assert not engine.prefix_caching
    assert found.deployment.kv_pool_bytes == 1600 * 524_288
    assert found.n_requests == 2000
    assert skipped == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"framework": "sglang"}, "engine is not vLLM"),
        ({"notes": "n=2000"}, "launch arguments are not printed"),
        ({"isl_tokens": 112.8}, "lengths are means of an unstated distribution"),
        ({"spec_decode": "mtp"}, "speculative or disaggregated"),
        ({"load_mode": "closed loop"}, "number of requests or their arrivals are not stated"),
        ({"output_tok_per_s": None}, "no output throughput"),
    ],
)
def test_rows_set_aside_are_counted(changes, reason):
    found, skipped = sweep_rows([measurement(**changes)], Catalog.load())
    assert (found, skipped) == ((), {reason: 1})


def test_an_unknown_gpu_is_a_reason():
    _, skipped = sweep_rows([measurement(gpu="Abacus 9000")], Catalog.load())
    (reason,) = skipped
    assert "Abacus" in reason
