"""Speed of the store: rows appended a second, and how long views and look-ups take at that size.

    python benchmarks/store.py [--results 1000000]

Rows have the keys and the metrics of a simulated result; they come in batches as a pool delivers
them and are flushed by the store's own rule. Beside the time passed stand the CPU seconds of this
process, which other programs on the machine do not lengthen.
"""

import argparse
import tempfile
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np
import polars as pl

from dse.store import KEYS, Store

METRICS = 40
BATCH = 1000
PHYSICS = "0" * 32
GPUS = np.array(["a100", "h100", "h200", "b200"])
APPEND_TARGET = 50_000  # results a second
QUERY_TARGET_S = 1.0
QUERIES = {
    "point_result, one point": "FROM point_result WHERE point_id = '{point}'",
    "answered, counted": "SELECT count(*) FROM answered",
    "answered, 100 rows": "FROM answered LIMIT 100",
    "answered, one point": "FROM answered WHERE point_id = '{point}'",
    "answered, best rate of each GPU": (
        "SELECT gpu, max(output_tok_per_s_per_gpu) FROM answered GROUP BY gpu"
    ),
    "front": "FROM front",
    "best_per_gpu": "FROM best_per_gpu",
    "why_not": "FROM why_not",
    "near_misses": "FROM near_misses",
}


def point_id(number):
    """As scattered as a real one: no range of rows has a range of them."""
    return blake2b(b"%d" % number, digest_size=16).hexdigest()


def batch(start, n, draw):
    """Results of `n` points from number `start` on."""
    metrics = {f"metric_{i}_s": draw.random(n) for i in range(METRICS - 1)}
    return pl.DataFrame(
        {
            "point_id": [point_id(i) for i in range(start, start + n)],
            "replicate": pl.Series([0] * n, dtype=pl.Int32),
            "physics_id": [PHYSICS] * n,
            "status": ["ok"] * n,
            "error": pl.Series([None] * n, dtype=pl.String),
            "output_tok_per_s_per_gpu": draw.random(n),
            **metrics,
        }
    )


def finished(store, frames, draw):
    """A finished run whose answer is all of the results, and who their points are."""
    run = {"run_id": "r", "study_id": "s", "status": "done", "physics_id": PHYSICS}
    store.replace(pl.DataFrame([{"study_id": "s", "name": "bench"}]), "study")
    began = pl.DataFrame([run]).with_columns(started_at=pl.datetime(2026, 1, 1))
    store.replace(began, "run")
    told = []
    for number, rows in enumerate(frames):
        gpu = pl.Series("gpu", GPUS[draw.integers(0, len(GPUS), rows.height)])
        store.append(rows.select("point_id", gpu, n_gpus=8, batch=64), "point")
        answer = rows.with_columns(gpu, run_id=pl.lit("r"), n_gpus=8, batch=64, n_replicates=1)
        told.append(answer.with_columns(feasible=True, on_front=number == 0))
    store.answer(pl.concat(told))


def appended(store, frames):
    """Append and flush all."""
    for rows in frames:
        store.append(rows)
    store.flush()


class Clock:
    """What took how long."""

    def __init__(self):
        self.rows = []

    def __call__(self, label, work, target_s=None):
        """Time `work`; the seconds passed and those of the CPU."""
        began, cpu = time.perf_counter(), time.process_time()
        work()
        took, used = time.perf_counter() - began, time.process_time() - cpu
        ratio = None if target_s is None else round(took / target_s, 2)
        self.rows.append(
            {"what": label, "s": round(took, 3), "cpu_s": round(used, 3), "of its target": ratio}
        )
        return took, used


def main():
    """Append, ask, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=1_000_000)
    n = parser.parse_args().results
    draw, clock = np.random.default_rng(0), Clock()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "x.duckdb") as store:
        frames = [batch(i, BATCH, draw) for i in range(0, n, BATCH)]
        took, used = clock(
            f"append {n:,} results", lambda: appended(store, frames), n / APPEND_TARGET
        )
        print(
            f"appended {n / took:,.0f} results/s, {n / took / APPEND_TARGET:.2f} of the target; "
            f"{n / used:,.0f} a CPU second"
        )
        clock("append their points and an answer of all", lambda: finished(store, frames, draw))
        more = batch(n, BATCH, draw)
        clock("flush of 1,000 more", lambda: appended(store, [more]))
        keys = frames[0].select(KEYS)
        clock("missing of 1,000 keys", lambda: store.missing(keys))
        clock("results of 1,000 keys", lambda: store.results(keys))
        for label, sql in QUERIES.items():
            asked = sql.format(point=point_id(n // 2))
            clock(f"query: {label}", lambda sql=asked: store.query(sql), QUERY_TARGET_S)
        size = store.path.stat().st_size
        print(f"file of {size / 1e6:,.0f} MB, {size / n:,.0f} bytes a result")
    pl.Config.set_tbl_rows(-1)
    pl.Config.set_fmt_str_lengths(60)
    print(pl.DataFrame(clock.rows))


if __name__ == "__main__":
    main()
