"""Latency against load, the knee, and goodput under other TPOT bounds, against sums by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from dse.report.drawn import with_words
from dse.report.load import goodput_by_bound, latency, load_column, tightened
from dse.report.record import Outcome
from dse.report.subject import subject
from dse.sim import LatencySketch


@pytest.fixture(scope="module")
def words(made: Outcome) -> Outcome:
    return replace(made, results=with_words(made.results), front=with_words(made.front))


def test_goodput_under_a_bound_is_that_of_the_sketch(words: Outcome) -> None:
    about = subject(words)
    by_point = {row["point_id"]: row for row in words.results.iter_rows(named=True)}
    assert words.sketches is not None
    held = {row["point_id"]: row for row in words.sketches.iter_rows(named=True)}
    found = goodput_by_bound(words, about)
    assert {row["gpu"] for row in found} == {"h100-sxm", "h200-sxm"}
    for row in found[::7]:
        codes = held[row["point_id"]]
        samples = np.array([codes["ttft_code"], codes["tpot_code"], codes["e2e_code"]], np.uint16).T
        slo = replace(about.slo, tpot_s=row["tpot_bound_s"])
        share = LatencySketch(samples, 40).attainment(slo)
        point = by_point[row["point_id"]]
        assert share >= about.slo.attainment
        assert row["goodput_req_per_s_per_gpu"] == pytest.approx(
            share * point["request_per_s"] / point["n_gpus"]
        )


def test_a_looser_bound_never_gives_less(words: Outcome) -> None:
    frame = pl.DataFrame(goodput_by_bound(words, subject(words)))
    for _, group in frame.group_by("gpu", maintain_order=True):
        assert group.sort("tpot_bound_s")["goodput_req_per_s_per_gpu"].is_sorted()


def test_refused_requests_are_not_good(words: Outcome) -> None:
    assert words.sketches is not None
    refused = words.sketches.with_columns(n_rejected=pl.lit(40))
    assert goodput_by_bound(replace(words, sketches=refused), subject(words)) == []


def test_without_sketches_there_is_no_chart(words: Outcome) -> None:
    for nothing in (None, pl.DataFrame()):
        assert tightened(replace(words, sketches=nothing), subject(words)) is None


def test_latency_is_drawn_in_its_shown_unit_for_each_load(words: Outcome) -> None:
    part = latency(words, subject(words))
    assert part is not None
    by_point = {row["point_id"]: row for row in words.results.iter_rows(named=True)}
    for row in part.datasets["load"]:
        seconds = by_point[row["point_id"]][f"{row['metric']}_{row['percentile']}_s"]
        scale = 1.0 if row["metric"] == "ttft" else 1e3
        assert row["value"] == seconds * scale
        assert row["load"] == by_point[row["point_id"]]["concurrency"]


def test_the_percentile_of_the_attainment_is_drawn_beside_its_bound(words: Outcome) -> None:
    for share, upper in ((0.95, "p95"), (0.97, "p99")):
        study = replace(words.study, slo=replace(words.study.slo, attainment=share))
        asked = replace(words, study=study)
        part = latency(asked, subject(asked))
        assert part is not None
        assert {row["percentile"] for row in part.datasets["load"]} == {"p50", upper}
        caption = part.section.charts[0].caption
        assert f"Solid: {upper}, dashed: median." in caption
        assert f"is for {100 * share:g}% of requests" in caption
        assert ("as the solid lines" in caption) == (upper == "p95")


def test_the_batch_cap_says_whose_it_is(words: Outcome) -> None:
    part = latency(words, subject(words))
    assert part is not None
    assert "the saturation model's, a closed form, not the simulator's" in part.section.lines[-1]


def test_the_knee_has_the_most_output_per_second_of_latency(words: Outcome) -> None:
    part = latency(words, subject(words))
    assert part is not None
    rows = pl.DataFrame(part.datasets["load"]).join(words.results, on="point_id")
    power = pl.col("output_tok_per_s_per_gpu") / pl.col("e2e_mean_s")
    for _, group in rows.group_by("who"):
        assert (
            group.filter("at_knee").select(power.min()).item() == group.select(power.max()).item()
        )


def test_advice_of_each_layout_stands_once(words: Outcome) -> None:
    part = latency(words, subject(words))
    assert part is not None
    advice = part.section.tables[0]
    layouts = [row[advice.columns.index("layout")] for row in advice.rows]
    assert len(layouts) == len(set(layouts))
    freed = advice.columns.index("kv_bytes_freed")
    assert advice.rows[0][freed] == "21"


def test_what_varies_as_load() -> None:
    assert load_column(pl.DataFrame({"concurrency": [1, 2]})) == "concurrency"
    rates = {"req_per_s": [1.0, 2.0], "concurrency": [None, None]}
    assert load_column(pl.DataFrame(rates)) == "req_per_s"
    assert load_column(pl.DataFrame({"concurrency": [4, 4]})) is None
