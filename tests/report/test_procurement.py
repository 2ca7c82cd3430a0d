"""GPUs side by side: costs from price and rate, break-even, fleets, equal interactivity."""

from dataclasses import replace

import polars as pl
import pytest

from dse.report.drawn import with_words
from dse.report.procurement import (
    Side,
    equal_interactivity,
    equal_slo,
    procurement,
    staircase,
    with_costs,
)
from dse.report.record import Outcome
from dse.report.subject import subject
from dse.study import Owned

SIDE = Side(column="gpu", keys=("gpu", "precision"))


@pytest.fixture(scope="module")
def words(made: Outcome) -> Outcome:
    return replace(made, results=with_words(made.results), front=with_words(made.front))


def test_costs_by_hand() -> None:
    # 1,000 output and 3,000 input tokens/s at 3.60 USD/h: a thousandth of a dollar a second.
    row = pl.DataFrame(
        {
            "usd_per_gpu_hour": [3.6],
            "output_tok_per_s_per_gpu": [1000.0],
            "total_tok_per_s_per_gpu": [4000.0],
            "joules_per_output_token": [0.5],
        }
    )
    found = with_costs(row).row(0, named=True)
    assert found["usd_per_mtok_output"] == pytest.approx(1.0)
    assert found["usd_per_mtok_input"] == pytest.approx(1 / 3)
    assert found["usd_per_mtok_total"] == pytest.approx(0.25)
    assert found["tok_per_joule"] == pytest.approx(2.0)


def test_at_the_same_slo_each_gpu_is_at_its_best(words: Outcome) -> None:
    found = equal_slo(words, subject(words), SIDE)
    assert set(found["gpu"]) == {"h100-sxm", "h200-sxm"}
    by = "goodput_req_per_s_per_gpu"
    for row in found.iter_rows(named=True):
        able = words.results.filter(pl.col("feasible") & (pl.col("gpu") == row["gpu"]))
        assert row[by] == able[by].max()
    assert found["usd_per_mtok_output"].is_sorted()


def test_at_its_break_even_price_a_gpu_costs_what_the_cheapest_other_does(words: Outcome) -> None:
    found = equal_slo(words, subject(words), SIDE)
    cheapest, other = found.row(0, named=True), found.row(1, named=True)
    for row, price_of in ((other, cheapest), (cheapest, other)):
        price = row["break_even_usd_per_gpu_hour"]
        cost = price / (row["output_tok_per_s_per_gpu"] * 3600) * 1e6
        assert cost == pytest.approx(price_of["usd_per_mtok_output"])


def test_equal_interactivity_is_never_interpolated(words: Outcome) -> None:
    found = equal_interactivity(words.results, SIDE)
    known = set(words.results["point_id"])
    for row in found.iter_rows(named=True):
        assert row["point_id"] in known
        assert row["tok_per_s_per_user"] >= row["at_least_tok_per_s"]
        able = words.results.filter(
            (pl.col("gpu") == row["gpu"])
            & (pl.col("tok_per_s_per_user") >= row["at_least_tok_per_s"])
        )
        assert row["output_tok_per_s_per_gpu"] == able["output_tok_per_s_per_gpu"].max()


def test_the_staircase_falls(words: Outcome) -> None:
    steps = staircase(words.results, SIDE)
    for _, group in steps.group_by(["gpu", "precision"]):
        assert group["tok_per_s_per_user"].is_sorted()
        assert group["output_tok_per_s_per_gpu"].is_sorted(descending=True)


def test_precisions_stand_apart(words: Outcome) -> None:
    some = pl.when(pl.col("tp") == 8).then(pl.lit("fp8 / bf16")).otherwise("precision")
    mixed = replace(words, results=words.results.with_columns(precision=some))
    found = equal_slo(mixed, subject(mixed), SIDE)
    assert found.height == found.select("gpu", "precision").n_unique() == 4


def test_prices_come_with_their_source(words: Outcome) -> None:
    part = procurement(words, subject(words))
    assert part is not None
    prices = part.section.tables[-1]
    assert prices.rows[0] == ("h100-sxm", "1.9, 2.5, 4", "the study")


def test_an_owned_gpu_says_what_its_price_is_made_of(words: Outcome) -> None:
    owned = Owned(capex_usd=42_000.0, years=4.0, utilisation=0.7, energy_usd_per_kwh=0.09, pue=1.25)
    study = replace(words.study, price={**words.study.price, "h200-sxm": owned})
    part = procurement(replace(words, study=study), subject(words))
    assert part is not None
    _, prices, source = part.section.tables[-1].rows[-1]
    # 42,000 / (4 × 8,766 × 0.7) + 0.7 kW × 1.25 × 0.09
    assert prices == "1.79"
    assert source == (
        "owned: 42,000 USD over 4 years at 70% use, energy 0.09 USD/kWh, PUE 1.25 (the study)"
    )


def test_without_a_price_there_is_no_view(words: Outcome) -> None:
    bare = words.results.drop("usd_per_gpu_hour", "usd_per_mtok_output")
    assert procurement(replace(words, results=bare), subject(words)) is None


def test_the_same_gpu_in_another_format_is_no_rival(words: Outcome) -> None:
    some = pl.when(pl.col("tp") == 8).then(pl.lit("fp8 / bf16")).otherwise("precision")
    mixed = replace(words, results=words.results.with_columns(precision=some))
    found = equal_slo(mixed, subject(mixed), SIDE)
    for row in found.iter_rows(named=True):
        others = found.filter(pl.col("gpu") != row["gpu"])["usd_per_mtok_output"]
        cost = row["break_even_usd_per_gpu_hour"] / (row["output_tok_per_s_per_gpu"] * 3600) * 1e6
        assert cost == pytest.approx(others.min())
