"""What a page draws of many results: the front whole, the rest by cells, and a note of it."""

import numpy as np
import polars as pl
import pytest

from dse.report.content import content
from dse.report.drawn import MOST, drawn, span, spans_decades
from dse.report.page import html
from dse.report.quantities import quantity
from dse.report.subject import subject
from tests.report.outcomes import outcome, rows


def many(n: int) -> pl.DataFrame:
    base = pl.DataFrame(list(rows()), infer_schema_length=None)
    draw = np.random.default_rng(0)
    picked = base[draw.integers(0, base.height, n)]
    rate = pl.col("output_tok_per_s_per_gpu") * pl.Series(draw.lognormal(0, 0.2, n))
    return picked.with_columns(
        output_tok_per_s_per_gpu=rate, point_id=pl.Series([f"{i:032x}" for i in range(n)])
    )


def test_few_points_are_all_drawn() -> None:
    made = outcome()
    found = drawn(made.results.with_columns(family=pl.lit("TP")), subject(made), ["point_id"])
    assert found.rows.height == made.results.height
    assert found.note == ""


def test_of_many_the_front_stays_whole_and_the_note_counts() -> None:
    made = outcome(rows=many(20_000), sketches=pl.DataFrame())
    results = made.results.with_columns(family=pl.lit("TP"))
    found = drawn(results, subject(made), ["point_id", "on_front"])
    assert found.rows.height <= MOST
    assert set(made.front["point_id"]) <= set(found.rows["point_id"])
    assert found.note.startswith(f"{found.rows.height:,} of 20,000 points are drawn")


def test_points_without_a_value_are_counted() -> None:
    made = outcome()
    blank = pl.when(pl.col("tp") == 8).then(None).otherwise(pl.col("tpot_mean_s"))
    results = made.results.with_columns(tpot_mean_s=blank, family=pl.lit("TP"))
    found = drawn(results, subject(made), ["point_id"])
    gone = results["tpot_mean_s"].null_count()
    assert found.note == f"{gone} points have no value on an axis."


@pytest.mark.parametrize(
    ("values", "wide"),
    [([1.0, 20.0], True), ([1.0, 5.0], False), ([0.0, 90.0], False), ([], False)],
)
def test_wide_ranges_are_logarithmic(values: list[float], wide: bool) -> None:
    assert spans_decades(pl.Series(values, dtype=pl.Float64)) == wide


def test_a_span_takes_in_bounds_that_are_near() -> None:
    each = quantity("tpot_mean_s")
    values = pl.Series([0.010, 0.030])
    assert span(values, each, [50.0, 900.0]) == (10.0, 50.0)
    low, high = span(pl.Series([0.01]), each)
    assert low < high


@pytest.mark.slow
def test_a_hundred_thousand_results_make_a_small_page() -> None:
    made = outcome(rows=many(100_000), sketches=pl.DataFrame())
    page = html(content(made))
    assert len(page.encode()) < 3_000_000
    assert "of 100,000 points are drawn" in page
