"""A space beyond rows: judged on axes as on rows, its likely best searched, all of it accounted."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dse.pareto import front
from dse.pipeline import judge_space
from dse.pipeline.asking import ceilings
from dse.pipeline.run import Means, run
from dse.pipeline.sifted import sift
from dse.search.dominance import costs, gap
from dse.store import Store
from dse.study import load_study, vast
from dse.study.vast import is_vast, needs_rows

TWO_BRANCHES = """
question: Together or apart, with three lengths?
space:
  model: qwen3-30b-a3b
  gpu: [h100-sxm, l40s]
  n_gpus: [4, 8]
  engine: [vllm@0.19, sglang@0.5]
  precision: {weights: bf16, kv: bf16}
  context: [{isl: 200, osl: 100}, {isl: 2000, osl: 100}, {isl: 30000, osl: 20}]
  batch: {powers_of: 4, from: 1, to: 256}
  any_of:
    together: {layout: {tp: [1, 2, 4], dp: [1, 2], ep: auto}}
    apart:
      prefill: {layout: {tp: [1, 2], pp: [1, 2]}}
      decode: {layout: {tp: [1, 2], dp: [1, 2], ep: auto}}
      split: auto
      where: [prefill_tp <= decode_tp * decode_dp]
workload: {lengths: {uniform: [0.8, 1.0]}, requests: 4 x concurrency}
load: closed_loop
slo: {ttft: 500 ms, tpot: 6 ms, attainment: 0.9}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
search: {method: bound, seeds: 1, tolerance: 2%, budget: 12}
price: {h100-sxm: 2.00 USD/h, l40s: 1.00 USD/h}
"""


def study_of(folder, text=TWO_BRANCHES, **changes):
    path = folder / "study.yaml"
    path.write_text(text)
    return load_study(path, set_=changes)


@pytest.fixture
def study(tmp_path):
    return study_of(tmp_path)


@pytest.fixture
def vastly(monkeypatch):
    """Every space is beyond rows."""
    monkeypatch.setattr(vast, "MANY", 0)


def counts(judged):
    return {
        "candidates": judged.n_candidates,
        "structural": judged.n_structural,
        "illegal": dict(judged.illegal),
        "killed": {name: n for name, n in judged.killed.items() if n},
        "survivors": judged.n_survivors,
    }


def test_axes_count_what_rows_count(study):
    """By every wall: one that rows know and axes do not would show."""
    by_rows, by_axes = judge_space(study), sift(study)
    assert counts(by_axes) == counts(by_rows)
    assert set(by_rows.killed) >= {"hbm", "tpot_floor", "ttft_floor", "goodput_ceiling"}
    assert by_rows.survivors.height > 1000


def test_without_an_slo_as_well(tmp_path):
    study = study_of(tmp_path, TWO_BRANCHES.replace("slo:", "overrides:\n  x:\n    slo:", 1))
    assert study.slo is None
    assert counts(sift(study)) == counts(judge_space(study))


def test_what_is_kept_are_survivors_as_rows_have_them(study):
    by_rows, by_axes = judge_space(study), sift(study)
    kept = by_axes.survivors
    assert 0 < kept.height < by_rows.survivors.height
    own = by_rows.survivors.join(kept.select("point"), on="point", how="semi")
    assert_frame_equal(kept, own.select(kept.columns))
    assert set(kept["structure"]) <= set(by_axes.structures) & set(by_axes.facts["structure"])
    assert by_axes.misses.height
    by_layout = set(by_axes.killed) - {"goodput_ceiling"}
    assert by_layout <= set(by_axes.misses["reason"]) <= set(by_axes.killed)


def test_the_front_is_among_what_is_kept(tmp_path):
    """Of a space small enough to simulate all of it."""
    text = TWO_BRANCHES.replace("gpu: [h100-sxm, l40s]", "gpu: h100-sxm").replace(
        "engine: [vllm@0.19, sglang@0.5]", "engine: vllm@0.19"
    )
    text = text.replace("{isl: 200, osl: 100}, ", "").replace(", {isl: 30000, osl: 20}", "")
    study = study_of(tmp_path, text)
    whole = study_of(
        tmp_path, text.replace("method: bound", "method: exhaustive").replace(", budget: 12", "")
    )
    with Store.open(tmp_path / "s.duckdb") as store:
        ran = run(whole, store=store)
    kept = sift(study).survivors
    frame = ran.answer.frame.filter("feasible")
    among = frame.join(kept.select("point"), on="point", how="semi")
    assert 0 < among.height < frame.height
    assert gap(costs(among, study.parts), costs(ran.answer.front, study.parts)) < 0.02


def test_a_run_accounts_for_every_survivor(study, vastly, tmp_path):
    assert is_vast(study)
    n_survivors = judge_space(study).survivors.height
    with Store.open(tmp_path / "s.duckdb") as store:
        ran = run(study, store=store, means=Means(workers=0))
    known = ran.answer.certificate
    assert known.n_survivors == ran.outcome.funnel.n_survivors == n_survivors
    assert known.n_simulated == 12
    assert known.n_simulated + sum(known.n_dropped.values()) + known.n_left == n_survivors
    assert known.n_left > 0
    assert known.gap > 0
    assert known.valid
    assert any("likely best were searched" in note for note in ran.outcome.notes)


def test_what_floors_drop_is_what_they_drop_row_by_row(study, vastly, tmp_path):
    """No more than the hardware rung says of the rows that were not kept."""
    with Store.open(tmp_path / "s.duckdb") as store:
        ran = run(study, store=store, means=Means(workers=0))
    judged, kept = judge_space(study), sift(study).survivors
    left = judged.survivors.join(kept.select("point"), on="point", how="anti")
    most = ceilings(study, judged, left)
    rows = left.with_columns(
        most=pl.Series([most[p] for p in left["point"]]) / pl.col("n_gpus") * pl.col("osl_tokens")
        * 0.9
    )  # fmt: skip
    assert rows.height == judged.n_survivors - kept.height
    front_ = ran.answer.front
    best = front_.select(pl.col("output_tok_per_s_per_gpu").max()).item()
    # A point whose ceiling is above the best of the front cannot have been dropped.
    n_open = rows.filter(pl.col("most") > 1.02 * best).height
    assert ran.answer.certificate.n_left >= n_open > 0


def test_groups_are_kept_and_closed_each_for_itself(tmp_path, vastly):
    study = study_of(tmp_path, TWO_BRANCHES + "compare_by: context\n")
    kept = sift(study).survivors
    assert kept["context"].n_unique() == judge_space(study).survivors["context"].n_unique()
    with Store.open(tmp_path / "s.duckdb") as store:
        ran = run(study, store=store, means=Means(workers=0))
    assert front(ran.answer.frame.filter("feasible"), study.parts).height
    n_groups = kept["context"].n_unique()
    assert n_groups < ran.answer.certificate.n_simulated <= 12 * n_groups


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"search.budget": "null"}, "budget"),
        ({"search.method": "exhaustive", "search.budget": "null"}, "budget"),
        ({"load": "{concurrency: [1, 2]}"}, "load"),
        ({"screens": "[n_gpus <= 4]"}, "screens"),
        ({"compare_by": "concurrency"}, "concurrency"),
        ({"objectives": "[tpot_p99, output_tok_per_s_per_gpu]"}, "means"),
        ({"space.where": "[batch <= n_gpus]"}, "conditions"),
    ],
)
def test_what_takes_rows_says_so(tmp_path, vastly, changes, word):
    text = TWO_BRANCHES
    if "load" in changes:
        text = text.replace("  batch: {powers_of: 4, from: 1, to: 256}\n", "")
    study = study_of(tmp_path, text, **changes)
    assert word in needs_rows(study)
    assert not is_vast(study)


def test_small_spaces_have_rows(study):
    assert needs_rows(study) is None
    assert not is_vast(study)
    assert vast.n_candidates(study, 10**9) >= judge_space(study).n_candidates


DENSE = """
question: Together alone, on clusters of several sizes
space:
  model: llama-3.1-8b
  gpu: h100-sxm
  n_gpus: [2, 4, 8]
  engine: vllm@0.19
  precision: {weights: bf16, kv: bf16}
  context: {isl: 800, osl: 100}
  batch: {powers_of: 2, from: 1, to: 64}
  layout: {tp: [1, 2, 4]}
workload: {requests: 4 x concurrency}
load: closed_loop
slo: {ttft: 500 ms, attainment: 0.9}
objectives: [output_tok_per_s_per_gpu]
search: {method: bound, seeds: 1, tolerance: 2%, budget: 30}
"""


@pytest.mark.parametrize("constraints", ["[]", "[n_gpus >= 4]"])
def test_layouts_that_are_together_are_each_guessed_by_their_own_prompts(
    tmp_path, monkeypatch, constraints
):
    """The best of few kept is the best of all, whatever constraints ask of the cluster."""
    study = study_of(tmp_path, DENSE, constraints=constraints)
    with Store.open(tmp_path / "s.duckdb") as store:
        whole = run(study, store=store, means=Means(workers=0)).answer.front
        monkeypatch.setattr(vast, "MANY", 0)
        found = run(study, store=store, means=Means(workers=0)).answer.front
    name = "output_tok_per_s_per_gpu"
    assert found[name].max() >= whole[name].max() / 1.02


def test_a_space_of_which_nothing_is_kept_has_an_answer(tmp_path, vastly):
    study = study_of(tmp_path, DENSE.replace("ttft: 500 ms", "ttft: 13 ms"))
    with Store.open(tmp_path / "s.duckdb") as store:
        ran = run(study, store=store, means=Means(workers=0))
    known = ran.answer.certificate
    assert known.n_simulated + sum(known.n_dropped.values()) + known.n_left == known.n_survivors
