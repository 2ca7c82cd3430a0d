"""End-to-end accuracy on the serving sample, and what leaving rows out does to it."""

import numpy as np
import polars as pl
import pytest

from dse.base.errors import UserError
from dse.evidence.accuracy_page import held_out, page
from dse.evidence.case import METRICS
from dse.evidence.fits import seen, unseen
from dse.evidence.intervals import with_bounds
from dse.evidence.residuals import by_regime, rates, rates_by_regime, threshold_of
from dse.evidence.serving_sample import read_sample, sample_path
from dse.evidence.validate import predictions, slices
from dse.evidence.validate_file import sampled

try:
    sample_path()
except UserError:
    pytest.skip("the silicon database is not installed", allow_module_level=True)

ROWS = 150


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return predictions(sampled(read_sample(), ROWS))


def test_a_sample_is_nearer_than_the_peer(frame: pl.DataFrame) -> None:
    """AIConfigurator 0.12: medians of 19.7% (TPOT) and 48.8% (TTFT) on its 629 rows."""
    clean = frame.filter((pl.col("status") == "ok") & (pl.col("set_aside") == ""))
    assert clean.height > 0.75 * ROWS
    found = {each.metric: each.median_ape for each in slices(clean)}
    assert found["tpot_s"] < 0.197
    assert found["ttft_s"] < 0.488


def test_constants_fitted_without_a_model_still_hold(frame: pl.DataFrame) -> None:
    clean = frame.filter((pl.col("status") == "ok") & (pl.col("set_aside") == ""))
    errors = held_out(clean, "tpot_s", [2e-4 * i for i in range(-5, 6)], (0.0,))
    assert len(errors) == clean.height
    assert np.median(np.abs(errors)) < 0.197


def test_rows_that_no_constant_saw_are_scored_apart(frame: pl.DataFrame) -> None:
    """328 of the 2,921 clean rows, median TPOT error 16%; a dozen of them are in this sample."""
    clean = frame.filter((pl.col("status") == "ok") & (pl.col("set_aside") == ""))
    rest = unseen(clean)
    assert 5 < rest.height < 0.3 * clean.height
    assert rest.height + seen(clean).height == clean.height
    (found,) = slices(rest, metrics=("tpot_s",))
    assert found.n == rest.height
    assert found.median_ape < 0.3


def test_shipped_intervals_hold_about_four_rows_in_five(frame: pl.DataFrame) -> None:
    """Two standard deviations of the share of 140 rows are 7 points."""
    clean = frame.filter((pl.col("status") == "ok") & (pl.col("set_aside") == ""))
    cases = [each for each in read_sample() if each.key in set(clean["key"])]
    bounded = with_bounds(clean, cases)
    for metric in ("tpot_s", "ttft_s"):
        inside = pl.col(f"measured_{metric}").is_between(
            pl.col(f"lo_{metric}"), pl.col(f"hi_{metric}")
        )
        assert 0.7 < bounded.select(inside.mean()).item() < 0.92


def test_every_row_of_the_sample_is_predicted_or_says_why(frame: pl.DataFrame) -> None:
    assert frame.height == 5221  # rows of silicon_sample.csv in aiconfigurator-core 0.12.0
    assert frame.filter((pl.col("reason") == "") & pl.col("status").is_null()).height == 0
    unique = frame.filter(~pl.col("reason").is_in(["repeats another row", "disaggregated"]))
    able = unique.filter(
        (pl.col("reason") == "") | (pl.col("reason") == "not in the sample asked for")
    )
    assert able.height >= 0.9 * unique.height


def test_the_page_states_counts_and_rules(frame: pl.DataFrame) -> None:
    empty = pl.DataFrame(
        {
            **{name: ["x"] for name in ("engine", "gpu", "model", "mode", "source")},
            "grade": ["A"],
            "status": ["skipped"],
            "reason": ["no GPU in the catalog"],
            **{f"error_{m}": pl.Series([None], dtype=pl.Float64) for m in METRICS},
        }
    )
    text = page(frame, empty)
    assert "5,221 rows" in text
    assert "speculation not marked" in text or "Clean rows" in text
    assert "Grade A\n\n1 rows, none predicted. Not predicted: 1 no GPU in the catalog." in text


def test_rates_of_a_threshold() -> None:
    rows = pl.DataFrame(
        {"residual": [1.2, 1.5, 2.0, 4.0, 3.0], "slow": [False, False, False, True, True]}
    )
    assert rates(rows, 1.4) == pytest.approx((2 / 3, 0.0))
    assert rates(rows, 3.5) == pytest.approx((0.0, 0.5))
    assert threshold_of(rows) == pytest.approx(2.0, abs=0.11)


def test_no_threshold_misses_more_than_a_quarter_of_the_slow_rows() -> None:
    """False alarms up to 6 and misses from 3 on: the least sum alone would be at 6, half missed."""
    slow, normal = [3.05, 3.15, 6.5, 7.0], [5.95] * 6 + [1.4] * 4
    rows = pl.DataFrame(
        {"residual": slow + normal, "slow": [True] * len(slow) + [False] * len(normal)}
    )
    assert sum(rates(rows, 6.0)) < sum(rates(rows, 3.0))
    assert rates(rows, threshold_of(rows))[1] <= 0.25


def test_each_regime_is_judged_by_its_own_threshold() -> None:
    rows = pl.DataFrame(
        {
            "residual": [2.0, 3.0, 6.0, 9.0],
            "slow": [False, True, False, True],
            "regime": ["dense > 16", "dense > 16", "MoE ≤ 16", "MoE ≤ 16"],
        }
    )
    limits = by_regime(rows)
    assert 2.0 <= limits["dense > 16"] < 3.0
    assert 6.0 <= limits["MoE ≤ 16"] < 9.0
    assert rates_by_regime(rows, limits) == pytest.approx((0.0, 0.0))
    assert min(sum(rates(rows, 0.1 * i)) for i in range(13, 100)) >= 0.5
