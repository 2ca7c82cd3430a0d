"""As a script: a cluster of two nodes on this machine, of which one dies amid an evaluation.

Prints one JSON document: the statuses, and whether the rows equal those of this process.
"""

import json
import os
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

import polars as pl

from dse.run.pool import on_ray
from dse.run.worker import SimulateRows
from dse.store import KEYS, Store
from tests.run.points import DEPLOYMENTS, evaluator, points, workload_of

NODE_BYTES = 80 * 2**20


class Slow(SimulateRows):
    """Takes its time, so that a node dies with work on it."""

    def __call__(self, chunk: pl.DataFrame) -> pl.DataFrame:
        time.sleep(0.3)
        return super().__call__(chunk)


def main() -> dict[str, object]:
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": NODE_BYTES}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    doomed = cluster.add_node(num_cpus=1, object_store_memory=NODE_BYTES)
    seen = {"chunks": 0}

    def told(_rows: int) -> None:
        seen["chunks"] += 1
        if seen["chunks"] == 3:
            cluster.remove_node(doomed, allow_graceful=False)

    with tempfile.TemporaryDirectory() as folder:
        stores = [Store.open(Path(folder) / name) for name in ("ray.duckdb", "here.duckdb")]
        with on_ray(cluster.address) as pool:
            far = evaluator(stores[0], pool, told=told)
            far.work = Slow(deployments=DEPLOYMENTS, workload_of=workload_of, tier="roofline")
            found = far(points(20))
        cluster.shutdown()
        evaluator(stores[1])(points(20))
        for store in stores:
            store.flush()
        rows = [store.query("FROM result").sort(KEYS) for store in stores]
        equal = (
            rows[0]
            .select(sorted(rows[0].columns))
            .equals(rows[1].select(sorted(rows[1].columns)), null_equal=True)
        )
    return {"statuses": sorted(set(found["status"])), "n": found.height, "equal": equal}


if __name__ == "__main__":
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        answer = main()
    out.write(json.dumps(answer))
