"""Speed of the store: rows appended a second, and how long views and look-ups take at that size.

    python benchmarks/store.py [--results 1000000]

Rows have the keys and the metrics of a simulated result; they are appended in batches as a pool
delivers them and flushed by the store's own rule.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from dse.store import KEYS, Store

METRICS = 40
BATCH = 1000
FLUSH_EVERY = 50
QUERIES = {
    "point_result, one point": "FROM point_result WHERE point_id = '{point}'",
    "best output rate by GPU": """
        SELECT gpu, max(output_tok_per_s_per_gpu) FROM point_result JOIN point USING (point_id)
        GROUP BY gpu""",
    "front": "FROM front",
    "best_per_gpu": "FROM best_per_gpu",
    "count of answered": "SELECT count(*) FROM answered",
}


def batch(start, n, draw):
    """Results of `n` points from number `start` on."""
    metrics = {f"metric_{i}_s": draw.random(n) for i in range(METRICS - 1)}
    return pl.DataFrame(
        {
            "point_id": [f"{i:032x}" for i in range(start, start + n)],
            "replicate": pl.Series([0] * n, dtype=pl.Int32),
            "physics_id": ["0" * 32] * n,
            "status": ["ok"] * n,
            "error": pl.Series([None] * n, dtype=pl.String),
            "output_tok_per_s_per_gpu": draw.random(n),
            **metrics,
        }
    )


def names(rows, draw):
    """Who those points are."""
    gpus = np.array(["a100", "h100", "h200", "b200"])[draw.integers(0, 4, rows.height)]
    return rows.select("point_id", gpu=pl.Series(gpus), n_gpus=pl.lit(8), batch=pl.lit(64))


def answer(store, n):
    """A finished run whose answer is all of them."""
    run = {"run_id": "r", "study_id": "s", "status": "done", "physics_id": "0" * 32}
    store.replace(pl.DataFrame([{"study_id": "s", "name": "bench"}]), "study")
    began = pl.DataFrame([run]).with_columns(started_at=pl.lit("2026-01-01 00:00:00"))
    store.replace(began.with_columns(pl.col("started_at").str.to_datetime()), "run")
    place = pl.int_range(n, eager=True)
    rows = pl.DataFrame({"point_id": [f"{i:032x}" for i in range(n)]}).with_columns(
        run_id=pl.lit("r"), physics_id=pl.lit("0" * 32), feasible=pl.lit(value=True),
        on_front=place < 100, front_rank=place.cast(pl.Int32),
    )  # fmt: skip
    store.append(rows.drop("physics_id") if not _has_physics(store) else rows, "answer")
    store.flush()


def _has_physics(store):
    return "physics_id" in store.query("SELECT * FROM answer LIMIT 0").columns


def timed(label, work, found):
    """Keep how long `work` takes, and give what it gives."""
    began = time.perf_counter()
    value = work()
    found.append({"what": label, "seconds": round(time.perf_counter() - began, 3)})
    return value


def main():
    """Append, ask, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=1_000_000)
    n = parser.parse_args().results
    draw = np.random.default_rng(0)
    found = []
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "x.duckdb") as store:
        frames = [batch(i, BATCH, draw) for i in range(0, n, BATCH)]
        began = time.perf_counter()
        for i, rows in enumerate(frames):
            store.append(rows)
            if i % FLUSH_EVERY == FLUSH_EVERY - 1:
                store.flush()
        store.flush()
        took = time.perf_counter() - began
        found.append({"what": f"append {n:,} results", "seconds": round(took, 3)})
        print(f"appended {n / took:,.0f} results/s (target 50,000)")
        for rows in frames:
            store.append(names(rows, draw), "point")
        timed("append their points", store.flush, found)
        timed("append an answer of all", lambda: answer(store, n), found)
        keys = frames[0].select(KEYS)
        timed(
            "flush of 1,000 more",
            lambda: (store.append(batch(n, BATCH, draw)), store.flush()),
            found,
        )
        timed("missing of 1,000 keys", lambda: store.missing(keys), found)
        timed("results of 1,000 keys", lambda: store.results(keys), found)
        for label, sql in QUERIES.items():
            timed(f"query: {label}", lambda sql=sql: store.query(sql.format(point="0" * 32)), found)
        size = store.path.stat().st_size
        print(f"file of {size / 1e6:,.0f} MB, {size / n:,.0f} bytes a result")
    pl.Config.set_tbl_rows(-1)
    print(pl.DataFrame(found))


if __name__ == "__main__":
    main()
