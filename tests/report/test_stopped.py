"""An empty front says in words what stopped everything, and what came nearest."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from dse.report.content import content
from dse.report.drawn import with_words
from dse.report.page import html, write
from dse.report.record import Funnel, Outcome
from dse.report.stopped import near_misses, nearest, reason_text, stopped
from dse.report.subject import subject
from dse.walls.kinds import WALLS
from tests.report.outcomes import outcome
from tests.report.pages import tags


@pytest.fixture(scope="module")
def nothing() -> Outcome:
    """Simulated, but nothing keeps the SLO."""
    made = outcome()
    late = made.results.with_columns(feasible=False, on_front=False, slo_attainment=pl.lit(0.4))
    return replace(made, results=late, front=made.front.clear(), details={})


@pytest.fixture(scope="module")
def unsimulated(nothing: Outcome) -> Outcome:
    funnel = Funnel(n_candidates=72, illegal={"heads": 40}, killed={"hbm": 32})
    return replace(nothing, results=nothing.results.clear(), funnel=funnel)


def test_each_step_that_took_points_is_named(nothing: Outcome) -> None:
    text = stopped(nothing, subject(nothing))
    assert text[0] == "3,360 of 12,480 no engine could start: heads 3,120; kv heads 240."
    assert text[1] == (
        "3,456 are beyond a wall: hbm 2,304 (weights and overheads do not fit a GPU); tpot floor "
        "1,152 (even one request alone decodes too slowly)."
    )
    assert text[2] == "96 were cut by the study's own screen mfu >= 0.3."
    n = nothing.results.height
    assert text[3] == (
        f"{n} were simulated; {n} keep the SLO for too few of their requests, 40% at best."
    )
    assert text[4].startswith("2 simulations failed")


def test_the_nearest_miss_says_by_how_much_and_what_would_do(nothing: Outcome) -> None:
    words = replace(nothing, near_misses=with_words(nothing.near_misses))
    assert nearest(words, subject(words))[0] == (
        "TP1 ×8 on 8 × h100-sxm (bf16 / bf16): weights and overheads do not fit a GPU; needs "
        "74.1 GB, has 71.2 GB, 4.07% over. It would do with tp=2, or kv: fp8."
    )


def test_near_misses_carry_amounts_with_units(made: Outcome) -> None:
    found = near_misses(with_words(made.near_misses), with_words(made.results))
    needs, has, why = (found.columns.index(name) for name in ("needs", "has", "what"))
    assert [(row[needs], row[has]) for row in found.rows] == [
        ("74.1 GB", "71.2 GB"),
        ("52 ms", "50 ms"),
    ]
    assert found.rows[1][why] == "tpot floor"
    assert near_misses(pl.DataFrame(), made.results).rows == ()


def test_a_late_point_has_the_share_that_it_reached(made: Outcome) -> None:
    late = {"reason": "slo_attainment", "demand": 0.95, "limit": 0.94, "unit": "", "margin": 0.01}
    frame = (
        with_words(made.near_misses).head(1).with_columns(**{k: pl.lit(v) for k, v in late.items()})
    )
    found = near_misses(frame, with_words(made.results))
    row = dict(zip(found.columns, found.rows[0], strict=True))
    assert (row["needs"], row["has"]) == ("95% of requests", "94% of requests")


def test_a_near_miss_says_its_precision_where_the_study_has_several(made: Outcome) -> None:
    results = with_words(made.results)
    misses = with_words(made.near_misses)
    assert "precision" not in near_misses(misses, results).columns
    fp8 = misses.with_columns(precision=pl.lit("fp8 / bf16"))
    assert "precision" in near_misses(fp8, results).columns


def test_a_rule_is_told_with_its_numbers(unsimulated: Outcome) -> None:
    remedy = "heads 64 % TP 3 = 1; legal: tp=2 or tp=4"
    row = {"gpu": "h100-sxm", "tp": 3, "reason": "legality", "rule": "heads", "remedy": remedy}
    unknown = dict.fromkeys(("demand", "limit", "unit", "margin"))
    refused = pl.DataFrame([{**row, **unknown}])
    told = replace(unsimulated, near_misses=refused)
    assert (
        stopped(told, subject(told))[0] == f"40 of 72 no engine could start: heads 40 ({remedy})."
    )
    assert nearest(told, subject(told)) == [f"TP3 on h100-sxm: {remedy}."]


def test_every_wall_says_what_its_kill_means() -> None:
    assert all(reason_text(kind) == WALLS[kind].says != "" for kind in WALLS)


def test_the_page_has_no_empty_section(nothing: Outcome, unsimulated: Outcome) -> None:
    late, never = content(nothing), content(unsimulated)
    assert "What was simulated" in [each.title for each in late.sections]
    assert "front" not in [each.name for each in never.sections]
    for found in (late, never):
        assert "Pareto front" not in [each.title for each in found.sections]
        for section in found.sections:
            assert any((section.lines, section.charts, section.tables, section.lists))
    page = html(never)
    assert [a for _, a in tags(page) if a.get("id") == "picked"] == []
    assert "What stopped them" in page
    assert "0 of 0" not in page


def test_the_readme_says_it_too(nothing: Outcome, tmp_path: Path) -> None:
    write(nothing, tmp_path, ("md",))
    text = (tmp_path / "README.md").read_text("utf-8")
    assert "**Nothing is feasible.** None of 12,480 candidates keeps TTFT" in text
    assert "**Nearest, and what would do**" in text
