"""Sensitivity: a panel for price, load and each bound in every context, and who is best."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from dse.report.drawn import with_words
from dse.report.record import Outcome
from dse.report.section import Part
from dse.report.sensitivity import held, sensitivity
from dse.report.subject import subject


@pytest.fixture(scope="module")
def words(made: Outcome) -> Outcome:
    return replace(made, results=with_words(made.results), front=with_words(made.front))


@pytest.fixture(scope="module")
def part(words: Outcome) -> Part:
    found = sensitivity(words, subject(words))
    assert found is not None
    return found


def feasible(words: Outcome, row: dict[str, Any]) -> pl.DataFrame:
    same = (pl.col("gpu") == row["gpu"]) & (pl.col("context") == row["context"])
    return words.results.filter(pl.col("feasible") & same)


def test_price_load_and_both_bounds_have_a_panel_in_every_context(part: Part) -> None:
    names = [each.name for each in part.section.charts]
    assert names == [f"sensitivity-{what}" for what in ("price", "load", "tpot", "ttft")]
    for figure in part.section.charts:
        assert figure.spec["facet"]["sort"] == ["1500 / 500", "8192 / 1024"]
        assert figure.spec["columns"] == 2
    for rows in part.datasets.values():
        assert {row["context"] for row in rows} == {"1500 / 500", "8192 / 1024"}


def test_one_context_is_one_panel(words: Outcome) -> None:
    one = words.results.filter(pl.col("context") == "1500 / 500")
    found = sensitivity(replace(words, results=one), subject(words))
    assert found is not None
    assert all("facet" not in figure.spec for figure in found.section.charts)


def test_a_cost_at_a_load_is_that_of_the_cheapest_point_with_no_more(
    part: Part, words: Outcome
) -> None:
    for row in part.datasets["sensitivity_load"]:
        able = feasible(words, row).filter(pl.col("concurrency") / pl.col("n_gpus") <= row["x"])
        assert row["y"] == pytest.approx(able["usd_per_mtok_output"].min())


def test_a_price_is_paid_for_the_output_of_the_best_point(part: Part, words: Outcome) -> None:
    rows = [row for row in part.datasets["sensitivity_price"] if row["dot"]]
    assert sorted({row["x"] for row in rows if row["gpu"] == "h100-sxm"}) == [1.9, 2.5, 4.0]
    by_point = {row["point_id"]: row for row in words.results.iter_rows(named=True)}
    for row in rows:
        rate = by_point[row["point_id"]]["output_tok_per_s_per_gpu"]
        assert row["y"] == pytest.approx(row["x"] / (rate * 3600) * 1e6)


@pytest.mark.parametrize(("metric", "bound"), [("tpot", 40.0), ("ttft", 2.0)])
def test_a_looser_bound_never_costs_more(part: Part, metric: str, bound: float) -> None:
    rows = pl.DataFrame(part.datasets[f"sensitivity_{metric}"])
    for _, group in rows.group_by("gpu", "context"):
        assert group.sort("x")["y"].is_sorted(descending=True)
    assert rows["bound"].drop_nulls().to_list() == [bound, bound]


def test_only_requests_that_keep_the_bound_are_paid_for(part: Part, words: Outcome) -> None:
    # Where all requests keep a bound, the cost under it is the cost of all output.
    by_point = {row["point_id"]: row for row in words.results.iter_rows(named=True)}
    for row in part.datasets["sensitivity_tpot"]:
        assert row["y"] >= by_point[row["point_id"]]["usd_per_mtok_output"] * (1 - 1e-9)


def test_without_a_price_the_yield_is_shown(words: Outcome) -> None:
    bare = words.results.drop("usd_per_gpu_hour", "usd_per_mtok_output")
    found = sensitivity(replace(words, results=bare), subject(words))
    assert found is not None
    assert found.section.charts[0].name == "sensitivity-load"
    assert "output per GPU" in found.section.charts[0].alt


def test_one_gpu_is_told_by_layout_family(words: Outcome) -> None:
    one = words.results.filter(pl.col("gpu") == "h200-sxm")
    study = replace(words.study, compare_by=None)
    found = sensitivity(replace(words, results=one, study=study), subject(words))
    assert found is not None
    assert {"TP", "TEP"} <= {row["family"] for row in found.datasets["sensitivity_load"]}


def test_nothing_feasible_has_no_sensitivity(words: Outcome) -> None:
    none = words.results.with_columns(feasible=False)
    assert sensitivity(replace(words, results=none), subject(words)) is None


def at(who: str, *pairs: tuple[float, float]) -> list[dict[str, Any]]:
    return [{"gpu": who, "x": x, "y": y} for x, y in pairs]


def test_who_is_best_changes_where_another_is_better_by_more_than_the_tolerance() -> None:
    rows = at("a", (1, 10), (4, 9.9)) + at("b", (2, 9.85), (8, 5))
    assert [(each.x, each.who) for each in held(rows, ["gpu"], "min", 0.02)] == [(1, "a"), (8, "b")]
    assert [each.who for each in held(rows, ["gpu"], "min", 0.001)] == ["a", "b"]
    assert [each.who for each in held(rows, ["gpu"], "max", 0.0)] == ["a"]


def test_who_only_begins_is_told_from_who_lost_before() -> None:
    rows = at("a", (1, 10), (4, 9)) + at("b", (2, 9.9), (3, 4)) + at("c", (5, 1))
    found = held(rows, ["gpu"], "min", 0.02)
    assert [(each.who, each.is_first) for each in found] == [
        ("a", True),
        ("b", False),
        ("c", True),
    ]


def test_costs_under_a_bound_are_said_to_count_less(part: Part, words: Outcome) -> None:
    assert "only requests that keep it count" in part.section.lines[0]
    bare = words.results.drop("usd_per_gpu_hour", "usd_per_mtok_output")
    found = sensitivity(replace(words, results=bare), subject(words))
    assert found is not None
    assert "only requests" not in found.section.lines[0]


def test_an_unfinished_search_has_no_tolerance_to_tell_leads_apart_by(words: Outcome) -> None:
    left = replace(words.funnel, n_survivors=words.funnel.n_survivors + 9)
    found = sensitivity(replace(words, funnel=left), subject(words))
    assert found is not None
    assert "the search ended before its proof" in found.section.lines[0]
    assert "counts as better from" not in found.section.lines[0]


def test_an_exact_front_says_nothing_of_a_tolerance(words: Outcome) -> None:
    exact = replace(words.study, search=replace(words.study.search, tolerance=0.0))
    found = sensitivity(replace(words, study=exact), subject(words))
    assert found is not None
    assert "from 0%" not in found.section.lines[0]
    proved = sensitivity(words, subject(words))
    assert proved is not None
    assert "counts as better from 2% on" in proved.section.lines[0]
