"""Two sides: points matched by what they deploy, ratios, what differs as a whole, and why."""

import json
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from dse.base.errors import UserError
from dse.report.compare import Side, compare
from dse.report.compared import content_of, headline, text
from dse.report.page import html
from dse.report.sides import of_file, of_outcome
from tests.report.outcomes import outcome
from tests.report.pages import dataset

MADE = outcome()
RATE = "output_tok_per_s_per_gpu"


def side(name: str, rows: pl.DataFrame, **provenance: Any) -> Side:
    return Side(name=name, results=rows, provenance=provenance)


def faster(factor: float = 1.1) -> pl.DataFrame:
    return MADE.results.with_columns(
        pl.col(RATE) * factor, point_id=pl.lit("x") + pl.col("point_id").str.slice(1)
    )


def test_every_point_is_matched_with_both_values_and_the_ratio() -> None:
    found = compare(side("a", MADE.results), side("b", faster()))
    assert found.matched.height == MADE.results.height
    rows = [row for row in found.rows() if row["metric"] == RATE]
    values = dict(MADE.results.select("point_id", RATE).iter_rows())
    assert all(row["a"] == values[row["point_id_a"]] for row in rows)
    assert all(row["ratio"] == pytest.approx(1.1) for row in rows)
    assert found.n_moved(RATE) == MADE.results.height
    assert found.n_moved("tpot_mean_s") == 0
    assert headline(found).startswith("output per GPU moved in 280 of 280 points: median +10.0%")


def test_a_choice_in_which_the_sides_differ_is_not_part_of_the_match() -> None:
    other = MADE.results.with_columns(engine=pl.lit("sglang@0.5"))
    found = compare(side("a", MADE.results), side("b", other))
    assert found.changed == {"engine": ("vllm@0.19", "sglang@0.5")}
    assert found.matched.height == MADE.results.height
    assert found.why == ("engine: vllm@0.19 in a, sglang@0.5 in b",)


def test_two_gpus_are_compared_layout_by_layout() -> None:
    sides = [
        side(gpu, MADE.results.filter(pl.col("gpu") == gpu)) for gpu in ("h100-sxm", "h200-sxm")
    ]
    found = compare(*sides)
    assert list(found.changed) == ["gpu"]
    assert set(found.matched["gpu_a"]) == {"h100-sxm"}
    assert (found.matched["tpot_mean_s_ratio"] < 1).all()


def test_facts_that_moved_are_named_with_how_many_points_they_touch() -> None:
    one = json.dumps({"pools": [{"gpu": {"hbm_bytes": 80e9, "tdp_watts": 700}}]})
    two = json.dumps({"pools": [{"gpu": {"hbm_bytes": 96e9, "tdp_watts": 700}}]})
    a = MADE.results.with_columns(facts=pl.lit(one))
    b = MADE.results.with_columns(facts=pl.lit(two))
    found = compare(side("a", a), side("b", b))
    assert found.why == ("pools.0.gpu.hbm_bytes: 8e+10 → 9.6e+10 (280 of 280 points)",)


def test_terms_are_compared_by_busy_time() -> None:
    steps = [json.dumps({"gemm": gemm, "attention": 1.0}) for gemm in (3.0, 2.0)]
    rows = [MADE.results.head(1).with_columns(step_breakdown=pl.lit(step)) for step in steps]
    found = compare(side("a", rows[0]), side("b", rows[1]))
    assert found.why == ("gemm took 75% of busy time and takes 67%: 3 s → 2 s, -25.0% of all",)


def test_versions_that_differ_are_named() -> None:
    found = compare(
        side("a", MADE.results, catalog="1", simulator="version 1"),
        side("b", MADE.results, catalog="1", simulator="version 2"),
    )
    assert found.why == ("simulator: version 1 in a, version 2 in b",)


def test_members_of_one_front_alone_are_listed() -> None:
    loser = MADE.front["point_id"][0]
    other = MADE.results.with_columns(on_front=pl.col("on_front") & (pl.col("point_id") != loser))
    found = compare(side("a", MADE.results), side("b", other))
    assert found.only_a["point_id"].to_list() == [loser]
    assert found.only_b.is_empty()


def test_nothing_in_common_is_the_users_error() -> None:
    other = MADE.results.with_columns(isl_tokens=pl.col("isl_tokens") * 10)
    with pytest.raises(UserError, match="no point in common"):
        compare(side("a", MADE.results), side("b", other))


def test_it_is_a_page_and_a_text() -> None:
    found = compare(of_outcome(MADE), side("b", faster()))
    page = html(content_of(found))
    assert "What moved from quickstart to b?" in page
    moves = dataset(page, "moves")
    assert len(moves) == MADE.results.height
    console = Console(width=100, highlight=False)
    with console.capture() as captured:
        console.print(text(found, 100))
    shown = captured.get()
    assert "median +10.0%" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 100


def test_rows_come_from_files(folder: Any) -> None:
    parquet, js = of_file(folder / "front.parquet"), of_file(folder / "front.json")
    assert parquet.results["point_id"].to_list() == MADE.front["point_id"].to_list()
    found = compare(parquet, js)
    assert found.n_moved(RATE) == 0
    with pytest.raises(UserError, match="no such file"):
        of_file(folder / "absent.parquet")
    with pytest.raises(UserError, match="rows come as"):
        of_file(folder / "README.md")
