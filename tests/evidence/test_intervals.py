"""Stated intervals: quantiles of residuals, the narrowest kind that has them."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from dse.base.source import read
from dse.catalog import Catalog
from dse.evidence.case import METRICS
from dse.evidence.coverage import coverage
from dse.evidence.intervals import (
    FEWEST,
    Intervals,
    banded,
    bounds,
    fitted,
    intervals,
    ratios,
    to_yaml,
)
from dse.hardware import DType
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.space.precision import precision_of


def rows(
    n: int, engine: str = "vllm", spread: float = 0.2, gpu: str = "a", bias: float = 1.0
) -> pl.DataFrame:
    """`n` rows measured at evenly spread ratios around their prediction."""
    ratio = bias * np.linspace(1.0 - spread, 1.0 + spread, n)
    columns = {f"pred_{name}": np.ones(n) for name in METRICS}
    columns |= {f"measured_{name}": ratio for name in METRICS}
    labels = {"engine": engine, "class": "dense", "gpu": gpu, "model": "m", "source": gpu}
    return pl.DataFrame({**{k: [v] * n for k, v in labels.items()}, **columns})


def test_eight_in_ten_rows_are_inside() -> None:
    frame = rows(1001)
    found = fitted(frame, "here").of("vllm", "dense", "tpot_s")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.84, 1.16))
    inside = frame["measured_tpot_s"].is_between(found.low, found.high)
    assert inside.mean() == pytest.approx(0.8, abs=0.01)


def test_pairs_that_err_together_widen_the_interval_until_it_holds_a_new_one() -> None:
    """Five GPUs of the same spread and other biases: plain quantiles hold 80% of what they saw."""
    biases = (0.9, 0.95, 1.0, 1.05, 1.1)
    frame = pl.concat([rows(200, gpu=f"g{b}", bias=b, spread=0.05) for b in biases])
    found = fitted(frame, "here").of("vllm", "dense", "tpot_s")
    ratio = frame["measured_tpot_s"].to_numpy()
    assert found is not None
    assert found.low < np.quantile(ratio, 0.1)
    assert found.high > np.quantile(ratio, 0.9)


def test_coverage_of_rows_left_out() -> None:
    alike = pl.concat([rows(200, gpu=name) for name in "abcde"])
    found, total = coverage(alike, ("tpot_s",))
    assert (found.engine, found.metric, found.n) == ("vllm", "tpot_s", 1000)
    assert replace(total, metric="tpot_s") == found
    assert found.seen == pytest.approx(0.8, abs=0.01)
    assert found.pair_out == pytest.approx(0.8, abs=0.01)
    stranger = pl.concat([alike, rows(200, gpu="f", bias=3.0)])
    other, _ = coverage(stranger, ("tpot_s",))
    assert other.pair_out < other.seen


def test_a_few_rows_are_judged_by_the_interval_that_is_stated_for_them() -> None:
    """Ten rows of a class take the factors of their engine, not those of the class elsewhere."""
    other = rows(1000, "sglang").with_columns(pl.lit("MoE").alias("class"))
    few = rows(10, "vllm", spread=0.01, bias=2.0)
    own = rows(40, "vllm", spread=0.01, bias=2.0).with_columns(pl.lit("MoE").alias("class"))
    elsewhere = rows(1000, "sglang")
    found = coverage(pl.concat([other, few, own, elsewhere]), ("tpot_s",))
    assert next(each.seen for each in found if each.engine == "vllm") > 0.7


def test_a_bias_widens_the_interval_to_the_prediction_itself() -> None:
    found = fitted(rows(100, bias=2.0), "here").of("vllm", "dense", "tpot_s")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1.0, 2.32), abs=0.01)


def test_a_gpu_is_one_pair_however_it_is_written() -> None:
    frame = pl.concat([rows(2, gpu="h100_sxm"), rows(2, gpu="H100-SXM")])
    assert ratios(frame, "tpot_s")["group"].n_unique() == 1


def test_too_few_rows_take_a_wider_kind() -> None:
    frame = pl.concat([rows(200), rows(FEWEST - 1, "sglang", 0.5)])
    found = fitted(frame, "here")
    assert found.of("sglang", "dense", "ttft_s") == found.of("other", "dense", "ttft_s")
    assert found.of("vllm", "MoE", "ttft_s") == found.of("vllm", "any", "ttft_s")


def test_the_file_reads_back(tmp_path: pytest.TempPathFactory) -> None:
    found = fitted(rows(100), "here")
    path = tmp_path / "intervals.yaml"  # type: ignore[operator]
    path.write_text(to_yaml(found))
    assert read(path, Intervals) == found


def dense_on_h200() -> Deployment:
    catalog = Catalog.load()
    gpu, model = catalog.gpu("h200-sxm"), catalog.model("qwen3-32b")
    fabric, engine = catalog.fabric(gpu.fabric), catalog.engine("vllm")
    pool = Pool(gpu=gpu, fabric=fabric, layout=Layout(tp=2), engine=engine)
    precision = precision_of(model, gpu, weights=DType.FP8, kv=DType.BF16)
    return Deployment(model=model, precision=precision, pools=(pool,))


def test_bounds_of_a_deployment_stand_around_its_value() -> None:
    asked = dense_on_h200()
    low, high = bounds(asked, "tpot_p99_s", 0.02)
    assert 0.0 < low < 0.02 < high
    low, high = bounds(asked, "output_tok_per_s_per_gpu", 900.0)
    assert 90.0 < low < high < 9000.0


def test_what_ships_says_what_it_saw() -> None:
    shipped = intervals()
    assert shipped.source
    assert all(each.low < each.high and each.n >= FEWEST for each in shipped.factors)


def test_a_front_gets_bands_of_what_it_optimises() -> None:
    asked = dense_on_h200()
    front = pl.DataFrame({"structure": [3, 4], "tpot_p99_s": [0.02, 0.03], "usd": [1.0, 2.0]})
    found = banded(front, {3: asked}, ("usd",))
    assert found.columns == ["structure", "tpot_p99_s", "usd", "lo_tpot_p99_s", "hi_tpot_p99_s"]
    assert found.row(0)[3:] == bounds(asked, "tpot_p99_s", 0.02)
    assert found.row(1)[3:] == (None, None)
