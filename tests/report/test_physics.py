"""Wall order, floors, roofline and breakdown, from the details of the front's members."""

from dataclasses import replace

import polars as pl
import pytest

from dse.report.drawn import with_words
from dse.report.physics import breakdown, roofline, walls
from dse.report.record import Outcome


@pytest.fixture(scope="module")
def words(made: Outcome) -> Outcome:
    return replace(made, results=with_words(made.results), front=with_words(made.front))


def test_walls_stand_at_their_concurrency_once_a_layout(words: Outcome) -> None:
    part = walls(words)
    assert part is not None
    best = words.front["point_id"][0]
    mine = [row for row in part.datasets["wall_order"] if row["point_id"] == best]
    assert [(row["wall"], row["at"]) for row in mine] == [
        ("kv capacity", 96.0),
        ("tpot floor", 230.0),
        ("flop", 410.0),
    ]
    names = [row["who"] for row in part.datasets["wall_load"]]
    assert len(names) == len(set(names))


def test_floors_keep_their_seconds(words: Outcome) -> None:
    part = walls(words)
    assert part is not None
    row = part.datasets["floors"][3]
    assert (row["concurrency"], row["t_opt_s"]) == (8.0, pytest.approx(6e-3 + 8e-5))


def test_an_operating_point_lies_under_its_roof(words: Outcome) -> None:
    part = roofline(words)
    assert part is not None
    gpu = words.study.catalog.gpu("h200-sxm")
    for point in part.datasets["operating"]:
        roof = min(gpu.peak_flop_per_s["bf16"], point["intensity"] * gpu.hbm_bytes_per_s) / 1e12
        assert point["low_tflop_per_s"] <= point["high_tflop_per_s"] <= roof * (1 + 1e-3)
    decode = next(p for p in part.datasets["operating"] if p["phase"] == "decode")
    assert decode["intensity"] == pytest.approx(2e12 / 4e10)


def test_the_ridge_is_where_the_roof_bends(words: Outcome) -> None:
    part = roofline(words)
    assert part is not None
    gpu = words.study.catalog.gpu("h200-sxm")
    ridge = gpu.peak_flop_per_s["bf16"] / gpu.hbm_bytes_per_s
    assert [row["intensity"] for row in part.datasets["roof"]][1] == pytest.approx(ridge)


def test_shares_of_a_step_add_up(words: Outcome) -> None:
    part = breakdown(words)
    assert part is not None
    totals: dict[str, float] = {}
    for row in part.datasets["breakdown"]:
        totals[row["who"]] = totals.get(row["who"], 0.0) + row["share"]
    assert all(total == pytest.approx(1.0) for total in totals.values())


def test_without_details_there_is_nothing_to_say(words: Outcome) -> None:
    bare = replace(words, details={})
    assert (walls(bare), roofline(bare), breakdown(bare)) == (None, None, None)


def test_a_gpu_that_the_catalog_lacks_has_no_roof(words: Outcome) -> None:
    unknown = pl.lit("h999").alias("gpu")
    front, results = (each.with_columns(unknown) for each in (words.front, words.results))
    assert roofline(replace(words, front=front, results=results)) is None
