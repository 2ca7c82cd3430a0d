"""The terminal's answer fits its width and says what was found, what was cut and where it is."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dse.report.record import Outcome
from dse.report.terminal import summary


def printed(made: Outcome, width: int) -> str:
    console = Console(width=width, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(summary(made, width, report=Path("reports/made/index.html")))
    return captured.get()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(made: Outcome, width: int) -> None:
    lines = printed(made, width).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width


def test_columns_are_whole_or_absent(made: Outcome) -> None:
    narrow, wide = printed(made, 80), printed(made, 140)
    assert "…" not in narrow.replace("… and", "")
    assert "USD/Mtok" not in narrow.split("─")[0].splitlines()[-1]
    assert len(wide.splitlines()) <= len(narrow.splitlines())


def test_what_it_says(made: Outcome) -> None:
    text = " ".join(printed(made, 140).split())
    assert "8 × h200-sxm, 1 replica of TP8 under vllm@0.19" in text
    assert f"… and {made.front.height - 10} more on the front" in text
    assert "12,480 candidates → 3,360 illegal and 3,456 beyond a wall (heads 3,120, hbm" in text
    assert text.endswith("Report: reports/made/index.html")


def test_an_empty_front_shows_near_misses(made: Outcome) -> None:
    text = printed(replace(made, front=made.front.clear()), 140)
    assert "Nothing" not in text
    assert "None of 12,480 candidates keeps" in text
    assert "tp=2, or kv: fp8" in text


def test_a_void_certificate_is_said(made: Outcome) -> None:
    void = replace(made, certificate={"valid": False, "statement": "VOID: 1 result beat its bound"})
    assert "VOID: 1 result beat its bound" in printed(void, 140)


def test_a_front_that_is_not_proved_is_said(made: Outcome) -> None:
    open_ = replace(made.funnel, n_survivors=made.funnel.n_survivors + 1234)
    text = printed(replace(made, funnel=open_), 140)
    assert "1,234 not simulated" in text
    assert "not simulated" not in printed(made, 140)


def undecided(made: Outcome) -> Outcome:
    return replace(made, funnel=replace(made.funnel, n_survivors=made.funnel.n_survivors + 34))


def test_the_best_of_what_a_budget_allowed_is_called_that(made: Outcome) -> None:
    said = f"of {made.results.height:,} points simulated under"
    assert said in printed(undecided(made), 140)
    assert said not in printed(made, 140)


def test_an_empty_front_proves_nothing_about_undecided_points(made: Outcome) -> None:
    text = printed(undecided(replace(made, front=made.front.clear())), 140)
    assert f"None of {made.results.height:,} points simulated keeps" in text
    assert "34 that were not may" in " ".join(text.split())
    assert "12,480 candidates keep" not in text


@pytest.mark.parametrize("width", [80, 100])
def test_a_front_that_is_not_proved_is_said_first(made: Outcome, width: int) -> None:
    statement = "the budget was spent before the front was proved: 34 undecided"
    open_ = replace(undecided(made), certificate={"valid": True, "statement": statement})
    text = " ".join(printed(open_, width).split())
    assert text.index("under vllm@0.19 ! Not proved: the budget was spent") < text.index("Recomm")
    assert text.count(statement) == 1
    assert "Not proved" not in printed(made, width)


def test_eighty_columns_keep_the_latencies_of_the_slo(made: Outcome) -> None:
    """Heads break at their words before a column is left out."""
    table = printed(made, 80).split("Launch:")[1].split("─")[0]
    words = table.split()
    assert words.count("TPOT") == 2
    assert words.count("TTFT") == 1
    assert "tok/s/GPU" in words
    assert "concurrency" in words


def test_one_of_a_kind_is_singular(made: Outcome) -> None:
    funnel = replace(made.funnel, n_candidates=1, n_survivors=1, n_dropped_by_bound=0)
    text = printed(replace(made, funnel=funnel, results=made.results.head(1)), 140)
    assert "1 candidate → " in text
    assert "→ 1 survivor → " in text
