"""Two Ray workers against one, and against this process, on a study that simulation bounds.

    python benchmarks/workers.py [--points 400] [--workers 2]

Every pool evaluates the same points into a store of its own, after a first small batch that starts
its workers and compiles what they compile. Printed: seconds, the ratio to one worker, and whether
results are equal.
"""

import argparse
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import polars as pl

from dse.catalog import Catalog
from dse.hardware import DType
from dse.run.evaluate import Evaluator
from dse.run.pool import in_process, on_ray
from dse.serving.arrivals import ClosedLoop
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.lengths import Lognormal
from dse.serving.workload import Workload
from dse.space.precision import precision_of
from dse.store import KEYS, Store

WARM_UP = 16
REQUESTS = 3000


def deployment():
    """Qwen3-32B on two H200."""
    catalog = Catalog.load()
    gpu, model = catalog.gpu("h200-sxm"), catalog.model("qwen3-32b")
    pool = Pool(
        gpu=gpu,
        fabric=catalog.fabric(gpu.fabric),
        layout=Layout(tp=2),
        engine=catalog.engine("vllm@0.19"),
    )
    precision = precision_of(model, gpu, weights=DType.BF16, kv=DType.BF16)
    return Deployment(model=model, precision=precision, pools=(pool,))


def workload_of(row):
    """A closed loop over log-normal lengths."""
    return Workload(
        arrivals=ClosedLoop(concurrency=row["concurrency"]),
        n_requests=REQUESTS,
        isl=Lognormal(mean_tokens=row["isl_tokens"], cv=0.8),
        osl=Lognormal(mean_tokens=400, cv=0.8),
    )


def points(n):
    """`n` points of rising length and concurrency."""
    return pl.DataFrame(
        {
            "point": pl.Series(range(n), dtype=pl.UInt64),
            "structure": pl.Series([0] * n, dtype=pl.UInt64),
            "concurrency": [16 + i % 48 for i in range(n)],
            "isl_tokens": [400 + i for i in range(n)],
        }
    )


def measured(folder, name, opened, asked):
    """Seconds of one pool, and its results."""
    with opened as pool, Store.open(folder / f"{name}.duckdb") as store:
        evaluate = Evaluator(
            deployments={0: deployment()}, workload_of=workload_of, store=store, pool=pool
        )
        evaluate(asked.head(WARM_UP))
        began = time.perf_counter()
        evaluate(asked.slice(WARM_UP))
        took = time.perf_counter() - began
        store.flush()
        return took, store.query("FROM result").sort(KEYS)


def main():
    """Measure the pools and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    rows = points(asked.points + WARM_UP)
    pools = {
        "1 worker": on_ray(n_workers=1),
        f"{asked.workers} workers": on_ray(n_workers=asked.workers),
        "this process": nullcontext(in_process),
    }
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: measured(Path(folder), name.split()[0], pool, rows)
            for name, pool in pools.items()
        }
    one, results = found["1 worker"]
    table = [
        {
            "pool": name,
            "seconds": round(took, 2),
            "against 1 worker": round(one / took, 2),
            "equal": rows.equals(results),
        }
        for name, (took, rows) in found.items()
    ]
    print(pl.DataFrame(table))


if __name__ == "__main__":
    main()
