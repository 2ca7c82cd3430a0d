"""The answer box: numbers of the best row, margins, bands, rivals, and what to say without one."""

from dataclasses import replace

import polars as pl

from dse.report.answer import answer
from dse.report.drawn import with_words
from dse.report.fleet import gpus_for
from dse.report.record import Outcome
from dse.report.subject import subject
from tests.report.outcomes import outcome


def asked(made: Outcome) -> Outcome:
    return replace(
        made,
        results=with_words(made.results),
        front=with_words(made.front),
        near_misses=with_words(made.near_misses),
    )


def reasons(made: Outcome) -> dict[str, tuple[str, ...]]:
    return dict(answer(asked(made), subject(made)).reasons)


def test_the_best_row_is_the_answer(made: Outcome) -> None:
    found = answer(asked(made), subject(made))
    best = made.front.row(0, named=True)
    assert found.point_id == best["point_id"]
    assert found.title == "Recommended: the highest output per GPU"
    assert found.headline.startswith("made-33b in bf16 with bf16 KV on 8 × h200-sxm, 1 replica of")
    facts = {fact.title: fact for fact in found.facts}
    assert facts["output per GPU"].value == f"{best['output_tok_per_s_per_gpu']:,.0f}"
    assert facts["GPUs for 50 req/s"].value == str(gpus_for(best, 50.0))


def test_margins_of_slo_and_walls(made: Outcome) -> None:
    best = made.front.row(0, named=True)
    margins = reasons(made)["Margins"]
    room = 100 * (1 - best["ttft_p95_s"] / 2.0)
    assert margins[0] == f"TTFT p95 ≤ 2 s: {best['ttft_p95_s']:.3g} s, {room:.0f}% to spare"
    assert any(line.startswith("kv capacity wall at 96 requests in flight") for line in margins)


def test_walls_of_one_replica_are_told_for_all(made: Outcome) -> None:
    front = made.front.head(1).with_columns(tp=1, n_replicas=8)
    margins = reasons(replace(made, front=front))["Margins"]
    assert any(line.startswith("kv capacity wall at 768 requests") for line in margins)


def test_without_validation_no_band_is_claimed(made: Outcome) -> None:
    assert "carry no error band" in reasons(made)["How sure"][0]
    banded = made.front.with_columns(lo_tpot_p99_s=pl.lit(0.010), hi_tpot_p99_s=pl.lit(0.016))
    sure = reasons(replace(made, front=banded))["How sure"][0]
    assert sure == "By validation against measurements: TPOT p99 10 to 16 ms."


def test_each_other_gpu_and_family_is_a_rival_once(made: Outcome) -> None:
    rivals = reasons(made)["Why not another"]
    assert len(rivals) == len(set(rivals)) == 6
    h100 = next(line for line in rivals if line.startswith("h100-sxm"))
    assert "% worse" in h100
    assert "cost of output" in h100


def test_nothing_feasible_names_the_nearest_miss() -> None:
    made = outcome()
    found = answer(asked(replace(made, front=made.front.clear())), subject(made))
    assert not found.feasible
    reasons = dict(found.reasons)
    assert reasons["Nearest, and what would do"][0].startswith("TP1 ×8 on 8 × h100-sxm")
    assert reasons["What stopped them"][0].startswith("3,360 of 12,480 no engine could start")
