"""Exact fronts from few simulations: `bound` against `exhaustive`.

    python benchmarks/search.py [small | large | STUDY …]

Each study is judged, searched exhaustively, by `bound` at tolerance 0 and at 2%. Printed: the share
of survivors on the front and simulated, whether the fronts agree (at 2%: the most by which a true
member is better than the nearest reported one), how far results stay behind the engine bound in the
median and at the 95th percentile, and what the three searches took in CPU seconds (results shared
by a store). `floor` is the share of survivors that it takes, by a greedy choice, to come within 2%
of every result: a search that knew all of them would simulate about as many.

The six `small` studies have 108 to 820 survivors; of the `large` ones see `search_studies`.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from search_studies import LARGE

from dse.pipeline.asking import Viewed, question
from dse.pipeline.judged import judge_space
from dse.run.evaluate import Evaluator
from dse.search import METHODS
from dse.search.dominance import costs, gap
from dse.store import Store
from dse.study import load_study

WORKLOAD = """
workload: {lengths: {uniform: [0.8, 1.0]}, requests: 6 x concurrency}
load: closed_loop
search: {method: bound, seeds: 1}
"""
SMALL = {
    "dense, two objectives": """
question: Qwen3-32B on eight GPUs
space:
  model: qwen3-32b
  gpu: [h100-sxm, h200-sxm]
  n_gpus: 8
  engine: vllm@0.19
  precision: {weights: [bf16, fp8], kv: bf16}
  context: [{isl: 1000, osl: 1000}, {isl: 200, osl: 800}]
  batch: {powers_of: 2, from: 1, to: 128}
  layout: {tp: [1, 2, 4, 8], pp: [1, 2]}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
""",
    "dense, cost and SLO": """
question: Llama-3.3-70B, cost against speed
space:
  model: llama-3.3-70b
  gpu: [h100-sxm, h200-sxm, b200-sxm]
  n_gpus: 8
  engine: vllm@0.19
  precision: {weights: fp8, kv: [bf16, fp8]}
  context: {isl: 2000, osl: 500}
  batch: {powers_of: 2, from: 1, to: 128}
  layout: {tp: [2, 4, 8]}
slo: {ttft: 2 s, tpot: 40 ms, attainment: 0.95}
objectives: [usd_per_mtok_output, tok_per_s_per_user]
""",
    "dense, three objectives": """
question: Llama-3.1-8B on four GPUs
space:
  model: llama-3.1-8b
  gpu: [h100-sxm, l40s]
  n_gpus: 4
  engine: sglang@0.5
  precision: {weights: [bf16, fp8], kv: bf16}
  context: {isl: 500, osl: 500}
  batch: {powers_of: 2, from: 1, to: 256}
  layout: {tp: [1, 2, 4]}
objectives: [output_tok_per_s_per_gpu, tpot_mean, ttft_mean]
""",
    "MoE, EP and DP attention": """
question: DeepSeek-V3 on 16 H200
space:
  model: deepseek-v3
  gpu: h200-sxm
  n_gpus: 16
  engine: sglang@0.5
  precision: {weights: fp8-block, kv: [bf16, fp8]}
  context: {isl: 1000, osl: 500}
  batch: {powers_of: 2, from: 1, to: 512}
  layout: {tp: [1, 2, 4, 8, 16], dp: [1, 2, 4, 8, 16], ep: auto}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
""",
    "MoE, small experts": """
question: Qwen3-30B-A3B on four GPUs
space:
  model: qwen3-30b-a3b
  gpu: [h100-sxm, h200-sxm]
  n_gpus: 4
  engine: vllm@0.19
  precision: {weights: [bf16, fp8], kv: bf16}
  context: {isl: 1000, osl: 300}
  batch: {powers_of: 2, from: 1, to: 256}
  layout: {tp: [1, 2, 4], ep: auto}
objectives: [output_tok_per_s_per_gpu, e2e_mean]
""",
    "apart": """
question: Qwen3-32B, prefill and decode apart or together
space:
  model: qwen3-32b
  gpu: h200-sxm
  n_gpus: 8
  engine: vllm@0.19
  precision: {weights: fp8, kv: bf16}
  context: {isl: 1000, osl: 300}
  batch: {powers_of: 2, from: 1, to: 64}
  any_of:
    together: {layout: {tp: [1, 2, 4, 8]}}
    apart:
      prefill: {layout: {tp: [1, 2]}}
      decode: {layout: {tp: [1, 2, 4]}}
      split: auto
objectives: [output_tok_per_s_per_gpu, tpot_mean]
""",
}
SETS = {"small": SMALL, "large": LARGE}
STUDIES = SMALL | LARGE
TOLERANCE = 0.02
SEARCHES = (("exhaustive", 0.0), ("bound", 0.0), ("bound", TOLERANCE))


def measured(name, folder):
    """One study by the three searches."""
    path = folder / "study.yaml"
    path.write_text(STUDIES[name] + WORKLOAD)
    study = load_study(path)
    judged = judge_space(study)
    deployments = {i: s.deployment for i, s in judged.structures.items()}
    store = folder / f"{abs(hash(name))}.duckdb"
    answers, seconds = [], []
    for method, tolerance in SEARCHES:
        with Store.open(store) as opened:
            evaluator = Evaluator(
                deployments=deployments,
                workload_of=study.workload_of,
                store=opened,
                replicates=study.search.seeds,
                slo=study.slo,
            )
            asked = question(study, judged, evaluator, None)
            # What a proof takes: a report has its contenders beside it.
            asked = replace(asked, tolerance=tolerance, contenders=0)
            began = time.process_time()
            answers.append(METHODS[method](judged.survivors, Viewed(evaluator), asked))
            seconds.append(time.process_time() - began)
    return study, judged, answers, seconds


def floor_of(every, objectives):
    """The fewest points, about, that come within the tolerance of every feasible result."""
    values = costs(every.frame.filter("feasible"), objectives)
    near = (values[:, None, :] <= values[None, :, :] + np.log1p(TOLERANCE)).all(axis=2)
    open_, n = np.ones(len(values), dtype=bool), 0
    while open_.any():
        open_ &= ~near[(near & open_).sum(axis=1).argmax()]
        n += 1
    return n


def row_of(name, study, judged, answers, seconds):
    """What the table says of a study."""
    every, exact, near = answers
    objectives = study.parts
    missed = gap(costs(near.front, objectives), costs(every.front, objectives))
    tight = every.certificate.tightness
    n = judged.survivors.height
    return {
        "study": name,
        "survivors": n,
        "front": f"{every.front.height / n:.1%}",
        "floor": f"{floor_of(every, objectives) / n:.1%}",
        "ε = 0": f"{exact.n_simulated / n:.1%}",
        "same front": set(every.front["point"]) == set(exact.front["point"]),
        "ε = 2%": f"{near.n_simulated / n:.1%}",
        "missed by": f"{missed:.2%}",
        "behind bound": ", ".join(f"{m:.1%}/{h:.0%}" for m, h in tight.values()),
        "valid": all(each.certificate.valid for each in answers),
        "failed": every.n_failed,
        "cpu s": " + ".join(f"{s:.1f}" for s in seconds),
    }, (exact.n_simulated / n, near.n_simulated / n)


def main():
    """Measure the studies asked for and print the table of each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="*", help="a set or a study; default: all")
    asked = parser.parse_args().study or list(SETS)
    if unknown := [each for each in asked if each not in SETS and each not in STUDIES]:
        parser.error(f"no set or study {unknown[0]!r}; there are {', '.join([*SETS, *STUDIES])}")
    chosen = [list(SETS[each]) if each in SETS else [each] for each in asked]
    pl.Config.set_tbl_rows(-1).set_tbl_cols(-1).set_tbl_width_chars(220).set_fmt_str_lengths(60)
    for names in chosen:
        rows, shares = [], []
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                row, share = row_of(name, *measured(name, Path(folder)))
                rows.append(row)
                shares.append(share)
                print(row, flush=True)
        print(pl.DataFrame(rows))
        exact, near = (statistics.median(column) for column in zip(*shares, strict=True))
        print(f"median share simulated: {exact:.1%} at ε = 0, {near:.1%} at ε = 2%", flush=True)


if __name__ == "__main__":
    main()
