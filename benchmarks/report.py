"""Speed of a report from the store: CPU seconds, peak memory and size of its page.

    python benchmarks/report.py [--results 1000000]

The study is the shipped quickstart over many batch sizes. Its points are real, their metrics are
made up, and the store is filled as a run would fill it; identities are computed of the rows whose
identity a report checks. Timed are the reading of the answer and the writing of the page.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from dse.pipeline.answering import keys_of
from dse.pipeline.judged import PRICE, judge_space
from dse.pipeline.origin import catalog_digest
from dse.pipeline.recalled import checked
from dse.pipeline.stored import stored
from dse.report.page import write
from dse.run.evaluate import SKETCH, Evaluator
from dse.search import Certificate
from dse.search.gather import judged as marked
from dse.store import Store
from dse.study import load_study

STUDY = Path(__file__).parents[1] / "studies" / "quickstart.yaml"
LAYOUTS = 12  # of the space, that walls leave at any batch
TARGET_S = 20.0
PAGE_TARGET_BYTES = 3e6
SKETCHES, REQUESTS = 2000, 400
METRICS = ("e2e_mean_s", "e2e_p99_s", "tpot_p50_s", "tpot_p99_s", "ttft_p50_s", "ttft_p99_s")
ENDS = ("low", "high")
SHARES = ("kv_peak_fraction", "mbu", "mfu", "slo_attainment", "tpot_p90_s", "ttft_mean_s")


def answered(study, n):
    """The survivors of a study as answered points, and what computes their identity."""
    judged = judge_space(study)
    draw, rows = np.random.default_rng(0), judged.survivors.drop(PRICE).head(n)
    tpot = rows["batch"].to_numpy() ** 0.5 * draw.lognormal(-4.5, 0.2, rows.height)
    made = {name: draw.lognormal(-3.0, 1.0, rows.height) for name in METRICS}
    made |= {name: draw.random(rows.height) for name in SHARES}
    frame = rows.with_columns(
        status=pl.lit("ok"),
        n_replicates=1,
        tpot_mean_s=tpot,
        output_tok_per_s_per_gpu=rows["concurrency"] / tpot / rows["n_gpus"],
        request_per_s=rows["concurrency"] / tpot / rows["osl_tokens"],
        feasible=pl.Series(tpot < np.quantile(tpot, 0.5)),
        **made,
    )
    ends = [pl.col(each.column).alias(f"{each.column}_{e}") for each in study.parts for e in ENDS]
    frame = frame.with_columns(ends)
    deployments = {i: each.deployment for i, each in judged.structures.items()}
    names = {"point_id": "", "physics_id": ""}
    frame = marked(frame, study.parts).with_columns(
        (pl.lit(f"{name}-") + pl.col("point").cast(pl.String)).alias(name) for name in names
    )
    frame = frame.with_columns(on_own_front=pl.col("on_front"))
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "x.duckdb") as unused:
        evaluator = Evaluator(
            deployments=deployments, workload_of=study.workload_of, store=unused, slo=study.slo
        )
        true = keys_of(checked(frame), judged.survivors, evaluator).drop("replicate")
    return frame.update(true, on="point"), judged.survivors.height


def remembered(store, study, frame, n_survivors):
    """Write what a run of the study would have written."""
    run = {
        "run_id": "r",
        "study_id": study.study_id,
        "status": "done",
        "catalog_digest": catalog_digest(study.catalog),
        "record": json.dumps({"columns": frame.columns}),
    }
    began = pl.DataFrame([run]).with_columns(started_at=pl.datetime(2026, 1, 1))
    store.replace(pl.DataFrame([{"study_id": study.study_id, "name": study.name}]), "study")
    store.replace(began, "run")
    certificate = Certificate(
        method="bound",
        tolerance=0.02,
        n_survivors=n_survivors,
        n_simulated=frame.height,
        n_dropped={},
        n_failed=0,
        rounds=(),
    )
    text = json.dumps(certificate.record())
    store.replace(pl.DataFrame([{"run_id": "r", "valid": True, "text": text}]), "certificate")
    best = frame.top_k(SKETCHES, by="output_tok_per_s_per_gpu")
    codes = np.random.default_rng(0).integers(20_000, 40_000, (best.height, REQUESTS))
    codes = pl.Series(codes.tolist(), dtype=pl.List(pl.UInt16))
    counts = {"n_requests": REQUESTS, "n_rejected": 0}
    keys = best.select("point_id", "physics_id", replicate=pl.lit(0, pl.Int32))
    named = dict.fromkeys(("ttft_code", "tpot_code", "e2e_code"), codes)
    store.append(keys.with_columns(**named, **counts), SKETCH)
    store.answer(frame.with_columns(run_id=pl.lit("r")))


def main():
    """Fill a store, report from it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=1_000_000)
    n = parser.parse_args().results
    wide = f"{{from: 1, to: {n // LAYOUTS + 1}, step: 1}}"
    study = load_study(STUDY, set_={"space.batch": wide, "slo": "{attainment: 0.5, e2e: 1000 h}"})
    steps = []

    def clock(label, work):
        began, cpu = time.perf_counter(), time.process_time()
        found = work()
        spent = time.process_time() - cpu
        steps.append({"what": label, "s": time.perf_counter() - began, "cpu_s": spent})
        return found

    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "x.duckdb") as store:
        frame, n_survivors = answered(study, n)
        clock("write the answer", lambda: remembered(store, study, frame, n_survivors))
        ran = clock("read the answer", lambda: stored(study, store))
        files = clock(
            "write the page", lambda: write(ran.outcome, Path(folder) / "page", ("html",))
        )
        size = sum(file.stat().st_size for file in files)
    used = sum(each["cpu_s"] for each in steps[1:])
    print(pl.DataFrame(steps))
    print(
        f"report of {ran.outcome.results.height:,} results of {n_survivors:,} survivors: "
        f"{used:.1f} CPU s, {used / TARGET_S:.2f} of the target; page of {size / 1e6:.2f} MB, "
        f"{size / PAGE_TARGET_BYTES:.2f} of the target; "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB at most"
    )


if __name__ == "__main__":
    main()
