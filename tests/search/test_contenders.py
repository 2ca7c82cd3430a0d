"""Beside the front: the best of other kinds, and the best one under other loads."""

import polars as pl

from dse.pipeline.run import Means, run
from dse.store import Store
from dse.study import load_study

STUDY = """
question: Who else?
space:
  model: qwen3-30b-a3b
  gpu: [h100-sxm, h200-sxm]
  n_gpus: 4
  engine: vllm@0.19
  precision: {weights: bf16, kv: bf16}
  context: {isl: 400, osl: 60}
  batch: {powers_of: 2, from: 1, to: 64}
  layout: {tp: [1, 2, 4], pp: [1, 2], ep: auto}
workload: {requests: 4 x concurrency}
load: closed_loop
slo: {ttft: 2 s, tpot: 40 ms, attainment: 0.9}
objectives: [output_tok_per_s_per_gpu]
search: {method: bound, seeds: 1}
"""


def answered(folder, **changes):
    path = folder / "study.yaml"
    path.write_text(STUDY)
    study = load_study(path, set_=changes)
    with Store.open(folder / "s.duckdb") as store:
        return run(study, store=store, means=Means(workers=0))


def test_the_best_is_simulated_under_all_loads_and_other_kinds_at_their_best(tmp_path):
    ran = answered(tmp_path)
    frame, known = ran.answer.frame, ran.answer.certificate
    assert known.valid
    assert known.n_left == 0
    assert known.n_simulated == frame.height == known.rounds[-1].n_simulated
    assert known.n_simulated + sum(known.n_dropped.values()) == known.n_survivors
    assert ran.answer.proofs.join(frame, on="point", how="semi").is_empty()
    best = ran.answer.front.row(0, named=True)
    own = frame.filter(pl.col("structure") == best["structure"])
    assert own["batch"].sort().to_list() == [1, 2, 4, 8, 16, 32, 64]
    assert set(frame["gpu"]) == {"h100-sxm", "h200-sxm"}
    kinds = frame.select(pl.col("ep") > 1, pl.col("pp") > 1).unique()
    assert kinds.height == 4


def test_a_budget_is_for_the_front_alone(tmp_path):
    found = answered(tmp_path, **{"search.budget": "3"}).answer
    assert found.certificate.n_left == 0
    assert found.n_simulated == 1
