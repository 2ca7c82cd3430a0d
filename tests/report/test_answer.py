"""The answer box: numbers of the best row, margins, bands, rivals, and what to say without one."""

from dataclasses import replace

import polars as pl

from dse.report.answer import answer
from dse.report.causes import causes
from dse.report.drawn import with_words
from dse.report.fleet import gpus_for
from dse.report.quantities import number
from dse.report.record import Outcome
from dse.report.subject import subject
from tests.report.outcomes import outcome

STOPS = "What stops it from doing better"


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
    assert found.launch == f"dse export {best['point_id'][:12]} --engine vllm"
    other = made.front.with_columns(engine=pl.lit("ideal"))
    assert answer(asked(replace(made, front=other)), subject(made)).launch == ""


def test_a_runner_up_says_what_holds_it_back() -> None:
    """GPU time for an output token by kernel family, and what ends its load."""
    row = {"output_tok_per_s": 100.0, "duration_s": 10.0, "n_gpus": 8}
    best = row | {"point_id": "best", "ttft_mean_s": 1.0, "queue_mean_s": 0.1}
    slow = row | {"point_id": "slow", "ttft_mean_s": 1.0, "queue_mean_s": 0.9}
    times = {"best": {"gemm": 6.0, "host": 4.0}, "slow": {"gemm": 8.0, "host": 4.5}}
    details = {
        name: {"breakdown": [{"family": each, "seconds": s} for each, s in parts.items()]}
        for name, parts in times.items()
    }
    about = subject(outcome())
    said = list(causes(slow, best, about, details))
    assert said[0] == "an output token takes 25% more GPU time, of it gemm +20% and host +5%"
    assert said[1] == "90% of its TTFT is waiting in the queue"
    assert list(causes(slow, best, about, {}))[:1] == said[1:]
    assert list(causes(slow, slow, about, details)) == []
    late = slow | {"ttft_p95_s": 1.96}
    assert "more load would break TTFT p95 ≤ 2 s (98% used)" in list(causes(late, best, about, {}))
    few, many = ({"concurrency": n, "n_gpus": 8} for n in (64, 512))
    assert list(causes(few, many, about, {})) == [
        "8 requests in flight per GPU share its steps, not 64"
    ]
    assert list(causes(many, few, about, {})) == []
    full = late | {"kv_peak_fraction": 0.99}
    assert list(causes(full, best, about, {})) == ["its KV pool is full (99% at the peak)"]


def test_a_cost_says_its_price(made: Outcome) -> None:
    cost = next(f for f in answer(asked(made), subject(made)).facts if f.title == "cost of output")
    price = made.front.row(0, named=True)["usd_per_gpu_hour"]
    assert cost.note == f"at {number(price)} USD/GPU/h"


def test_margins_of_slo_and_walls(made: Outcome) -> None:
    best = made.front.row(0, named=True)
    margins = reasons(made)[STOPS]
    room = 100 * (1 - best["ttft_p95_s"] / 2.0)
    assert f"TTFT p95 ≤ 2 s: {best['ttft_p95_s']:.3g} s, {room:.0f}% to spare" in margins
    pool = f"KV pool: {100 * best['kv_peak_fraction']:.0f}% used at its peak"
    assert (margins[0] == pool) == (best["kv_peak_fraction"] > best["ttft_p95_s"] / 2.0)
    assert any(line.startswith("kv capacity wall at 96 requests in flight") for line in margins)


def test_a_pool_full_at_its_peak_alone_is_told_from_one_that_is_always_full(made: Outcome) -> None:
    front = made.front.head(1).with_columns(kv_peak_fraction=1.0, kv_mean_fraction=0.742)
    margins = reasons(replace(made, front=front))[STOPS]
    assert "KV pool: 100% used at its peak, 74% on average" in margins


def test_walls_of_one_replica_are_told_for_all(made: Outcome) -> None:
    front = made.front.head(1).with_columns(tp=1, n_replicas=8)
    margins = reasons(replace(made, front=front))[STOPS]
    assert any(line.startswith("kv capacity wall at 768 requests") for line in margins)


def banded(made: Outcome, **factors: tuple[float, float]) -> Outcome:
    """With intervals around columns of the front, as factors on their values."""
    ends = {
        f"{end}_{column}": pl.col(column) * pair[i]
        for column, pair in factors.items()
        for i, end in enumerate(("lo", "hi"))
    }
    return replace(made, front=made.front.with_columns(**ends))


def test_without_validation_no_band_is_claimed(made: Outcome) -> None:
    found = answer(asked(made), subject(made))
    assert "carry no error band" in dict(found.reasons)["How sure"][0]
    assert all(not fact.band for fact in found.facts)
    assert found.cautions == ()


def test_goodput_cost_and_gpus_have_the_range_of_the_output_rate(made: Outcome) -> None:
    known = banded(made, output_tok_per_s_per_gpu=(0.5, 1.25), tpot_p99_s=(0.9, 1.1))
    facts = {fact.title: fact for fact in answer(asked(known), subject(made)).facts}
    best = made.front.row(0, named=True)
    cost = best["usd_per_mtok_output"]
    assert facts["cost of output"].band == f"{number(cost / 1.25)} to {number(cost / 0.5)}"
    rate = "goodput_req_per_s_per_gpu"
    ends = [gpus_for({**best, rate: best[rate] * factor}, 50.0) for factor in (1.25, 0.5)]
    assert facts["GPUs for 50 req/s"].band == f"{ends[0]} to {ends[1]}"


def test_a_bound_within_the_range_is_a_caution(made: Outcome) -> None:
    best = made.front.row(0, named=True)
    for column, bound in (("tpot", 0.04), ("ttft", 2.0)):
        over = 1.01 * bound / best[f"{column}_p95_s"]
        inside = banded(made, **{f"{column}_p99_s": (0.9, over)})
        (text,) = (t for t in answer(asked(inside), subject(made)).cautions if "≤" in t)
        assert text.startswith(f"{column.upper()} p95 ≤")
        apart = banded(made, **{f"{column}_p99_s": (0.9, over / 1.02)})
        assert not [t for t in answer(asked(apart), subject(made)).cautions if "≤" in t]


def test_a_runner_up_within_the_range_is_a_caution(made: Outcome) -> None:
    first = "output_tok_per_s_per_gpu"
    near = banded(made, **{first: (0.5, 1.5)})
    assert "Runner-up" in answer(asked(near), subject(made)).cautions[-1]
    best = pl.col("point_id") == made.front["point_id"][0]
    behind = made.results.with_columns(pl.when(best).then(first).otherwise(pl.col(first) / 2))
    far = banded(replace(made, results=behind), **{first: (0.75, 1.25)})
    assert not any("Runner-up" in text for text in answer(asked(far), subject(made)).cautions)


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
