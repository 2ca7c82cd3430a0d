"""Stated intervals: quantiles of residuals, the narrowest kind that has them."""

import numpy as np
import polars as pl
import pytest

from dse.base.source import read
from dse.catalog import Catalog
from dse.evidence.case import METRICS
from dse.evidence.intervals import FEWEST, Intervals, banded, bounds, fitted, intervals, to_yaml
from dse.hardware import DType
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.space.precision import precision_of


def rows(n: int, engine: str = "vllm", spread: float = 0.2) -> pl.DataFrame:
    """`n` rows measured at evenly spread ratios around their prediction."""
    ratio = np.linspace(1.0 - spread, 1.0 + spread, n)
    columns = {f"pred_{name}": np.ones(n) for name in METRICS}
    columns |= {f"measured_{name}": ratio for name in METRICS}
    return pl.DataFrame({"engine": [engine] * n, "class": ["dense"] * n, **columns})


def test_eight_in_ten_rows_are_inside() -> None:
    frame = rows(1001)
    found = fitted(frame, "here").of("vllm", "dense", "tpot_s")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.84, 1.16))
    inside = frame["measured_tpot_s"].is_between(found.low, found.high)
    assert inside.mean() == pytest.approx(0.8, abs=0.01)


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


def test_bounds_of_a_deployment_stand_around_its_value() -> None:
    catalog = Catalog.load()
    gpu, model = catalog.gpu("h200-sxm"), catalog.model("qwen3-32b")
    fabric, engine = catalog.fabric(gpu.fabric), catalog.engine("vllm")
    pool = Pool(gpu=gpu, fabric=fabric, layout=Layout(tp=2), engine=engine)
    precision = precision_of(model, gpu, weights=DType.FP8, kv=DType.BF16)
    asked = Deployment(model=model, precision=precision, pools=(pool,))
    low, high = bounds(asked, "tpot_p99_s", 0.02)
    assert 0.0 < low < 0.02 < high
    low, high = bounds(asked, "output_tok_per_s_per_gpu", 900.0)
    assert 90.0 < low < high < 9000.0


def test_what_ships_says_what_it_saw() -> None:
    shipped = intervals()
    assert shipped.source
    assert all(each.low < each.high and each.n >= FEWEST for each in shipped.factors)


def test_a_front_gets_bands_of_what_it_optimises() -> None:
    catalog = Catalog.load()
    gpu, model = catalog.gpu("h200-sxm"), catalog.model("qwen3-32b")
    fabric, engine = catalog.fabric(gpu.fabric), catalog.engine("vllm")
    pool = Pool(gpu=gpu, fabric=fabric, layout=Layout(tp=2), engine=engine)
    precision = precision_of(model, gpu, weights=DType.FP8, kv=DType.BF16)
    asked = Deployment(model=model, precision=precision, pools=(pool,))
    front = pl.DataFrame({"structure": [3, 4], "tpot_p99_s": [0.02, 0.03], "usd": [1.0, 2.0]})
    found = banded(front, {3: asked}, ("usd",))
    assert found.columns == ["structure", "tpot_p99_s", "usd", "lo_tpot_p99_s", "hi_tpot_p99_s"]
    assert found.row(0)[3:] == bounds(asked, "tpot_p99_s", 0.02)
    assert found.row(1)[3:] == (None, None)
