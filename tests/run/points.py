"""A small space for runs: two tiny deployments under closed loops; run as a script, it simulates.

`python -m tests.run.points STORE N SLEEP_S` evaluates N points into STORE, chunk by chunk.
"""

import sys
import time
from collections.abc import Mapping
from typing import Any

import polars as pl

from dse.run.evaluate import Evaluator
from dse.run.pool import Pool, in_process
from dse.serving.arrivals import ClosedLoop
from dse.serving.layout import Layout
from dse.serving.lengths import Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.store import Store
from tests import worlds

DEPLOYMENTS = {
    1: worlds.deployment(worlds.tiny()),
    2: worlds.deployment(worlds.tiny(), layout=Layout(tp=2)),
    3: worlds.deployment(worlds.tiny(), kv_pool_bytes=1.0),
}
FITS, TOO_SMALL = (1, 2), 3


def points(n: int, structures: tuple[int, ...] = FITS) -> pl.DataFrame:
    """`n` points of each structure, of rising concurrency."""
    return pl.DataFrame(
        {
            "structure": pl.Series([s for s in structures for _ in range(n)], dtype=pl.UInt64),
            "concurrency": [1 + i for _ in structures for i in range(n)],
        }
    ).select(
        pl.int_range(pl.len(), dtype=pl.UInt64).alias("point"),
        "structure",
        isl_tokens=pl.lit(40),
        osl_tokens=pl.lit(12),
        concurrency="concurrency",
    )


def workload_of(row: Mapping[str, Any]) -> Workload:
    return Workload(
        arrivals=ClosedLoop(concurrency=row["concurrency"]),
        n_requests=2 * row["concurrency"],
        isl=Uniform(low_tokens=row["isl_tokens"] // 2, high_tokens=row["isl_tokens"]),
        osl=Uniform(low_tokens=row["osl_tokens"] // 2, high_tokens=row["osl_tokens"]),
    )


def evaluator(store: Store, pool: Pool = in_process, **changes: Any) -> Evaluator:
    facts: dict[str, Any] = {
        "deployments": DEPLOYMENTS,
        "workload_of": workload_of,
        "store": store,
        "pool": pool,
        "replicates": 2,
        "slo": SLO(ttft_s=1e-3, tpot_s=1e-4, attainment=0.9),
        "tier": "roofline",
    }
    return Evaluator(**facts | changes)


def main(path: str, n: int, sleep_s: float) -> None:
    def told(_rows: int) -> None:
        print("chunk", flush=True)
        time.sleep(sleep_s)

    with Store.open(path, flush_interval_s=0.05) as store:
        evaluator(store, told=told)(points(n))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
