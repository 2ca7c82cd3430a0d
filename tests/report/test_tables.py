"""Tables hold the frame's numbers; the funnel adds up; Markdown keeps its columns."""

import polars as pl

from dse.report.drawn import with_words
from dse.report.record import Funnel, Outcome
from dse.report.subject import subject
from dse.report.tables import amount, front_table, funnel_rows, markdown, provenance, table


def test_the_front_table_has_every_member_best_first(made: Outcome) -> None:
    front = with_words(made.front)
    found = front_table(front, subject(made), with_words(made.results))
    assert found.keys == tuple(made.front["point_id"])
    at = found.columns.index("output_tok_per_s_per_gpu")
    assert [row[at] for row in found.values] == made.front["output_tok_per_s_per_gpu"].to_list()
    assert [row[at] for row in found.values] == sorted((r[at] for r in found.values), reverse=True)


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    frame = pl.DataFrame({"point_id": [str(i) for i in range(100)], "tp": list(range(100))})
    found = table(frame, ["tp"])
    assert len(found.rows) == 60
    assert found.note == "The first 60 of 100 rows; all are in front.parquet."


def test_columns_that_hold_nothing_are_left_out() -> None:
    frame = pl.DataFrame({"tp": [1, 2], "ep": pl.Series([None, None], dtype=pl.Int64)})
    assert table(frame, ["tp", "ep", "absent"]).columns == ("tp",)


def test_the_funnel_adds_up(made: Outcome) -> None:
    funnel = made.funnel
    removed = [*funnel.illegal.values(), *funnel.killed.values(), *funnel.screened.values()]
    assert funnel.n_candidates - sum(removed) == funnel.n_survivors
    rows = funnel_rows(funnel, made.results.height, 100, made.front.height)
    by_step = {row["step"]: row["n"] for row in rows}
    assert by_step["candidates"] == 12_480
    assert by_step["− wall: hbm"] == 2_304
    simulated = by_step["simulated"]
    assert by_step["survivors"] - by_step["− dropped by bound"] == simulated
    assert simulated == made.results.height


def test_an_empty_step_that_removes_is_left_out() -> None:
    rows = funnel_rows(Funnel(n_candidates=3, n_survivors=3, n_simulated=3), 3, None, 1)
    assert [row["step"] for row in rows] == ["candidates", "survivors", "simulated", "on the front"]


def test_a_point_is_counted_once_however_many_loads_it_was_simulated_at() -> None:
    funnel = Funnel(n_candidates=3, n_survivors=3, n_simulated=20, n_reused=4)
    assert {row["step"]: row["n"] for row in funnel_rows(funnel, 3, 2, 1)}["simulated"] == 3


def test_amounts_are_in_the_unit_of_a_symbol_or_of_a_columns_ending() -> None:
    assert amount(77.3e9, "bytes") == amount(77.3e9, "B") == "77.3 GB"
    assert amount(8344.0, "tok_per_s") == "8344 tok/s"
    assert amount(None, "s") is None


def test_markdown_escapes_what_would_end_a_cell() -> None:
    frame = pl.DataFrame({"layout": ["P TP4 | D EP8"], "tp": [4]})
    lines = markdown(table(frame, ["layout", "tp"])).splitlines()
    assert lines == ["| layout | TP |", "| :-- | --: |", "| P TP4 \\| D EP8 | 4 |"]


def test_provenance_is_text(made: Outcome) -> None:
    assert ("versions", "dse 0.1.0, python 3.12") in provenance(made)


def test_a_varied_fact_tells_rows_apart(made: Outcome) -> None:
    kinds = ["static" if i % 2 else "chunked_prefill" for i in range(made.front.height)]
    front = made.front.with_columns(pl.Series("engine.scheduler", kinds))
    found = front_table(front, subject(made), made.results)
    assert "engine.scheduler" in found.columns
    assert "engine.scheduler" not in front_table(made.front, subject(made), made.results).columns


def test_what_varies_among_the_results_is_said_of_a_front_that_is_all_one(made: Outcome) -> None:
    front, results = with_words(made.front), with_words(made.results)
    assert "precision" not in front_table(front, subject(made), results).columns
    other = results.with_columns(precision=pl.lit("fp8 / bf16"))
    assert "precision" in front_table(front, subject(made), other).columns
