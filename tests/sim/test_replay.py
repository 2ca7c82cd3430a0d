"""The vLLM 0.19 trace replay on one RTX 4090 (LLMServingSim bench/examples/RTX4090): 300 requests
with their arrivals and lengths, priced from the kernel grid of the same source."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.catalog import Catalog
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.workload import Workload
from dse.sim import compile_run, simulate
from dse.space.precision import precision_of
from dse.study.trace import read_trace
from tests.sim.grid import GridKernels
from tests.sim.worlds import Free

SETTINGS = {"max_num_batched_tokens": 2048, "max_num_seqs": 256}


def replayed() -> Deployment:
    catalog = Catalog.load()
    model, gpu = catalog.model("llama-3.1-8b"), catalog.gpu("rtx-4090")
    engine = replace(catalog.engine("vllm@0.19"), **SETTINGS)
    fabric = catalog.fabric(gpu.fabric)
    pool = Pool(gpu=gpu, fabric=fabric, layout=Layout(), engine=engine)
    precision = precision_of(model, gpu, weights=model.checkpoint, kv=model.checkpoint)
    return Deployment(model=model, precision=precision, pools=(pool,))


def measured(folder: Path) -> tuple[Path, list[dict[str, str]]]:
    file = folder / "bench" / "RTX4090_Llama-3.1-8B_requests.csv"
    with file.open(encoding="utf-8") as lines:
        return file, list(csv.DictReader(lines))


@pytest.mark.usefixtures("compiled")
def test_the_replay_is_met(measured_data: Path) -> None:
    file, rows = measured(measured_data)
    grid = measured_data / "bench/rtx4090_kernels/meta-llama/Llama-3.1-8B/bf16/tp1"
    spec = compile_run(replayed(), kernels=GridKernels(grid), collectives=Free())
    assert spec.pools[0].kv.n_units == pytest.approx(2588, rel=0.03)
    workload = Workload(arrivals=read_trace(file), n_requests=len(rows))
    found: Any = simulate(replayed(), workload, 0, spec=spec)
    total = max(float(row["arrival_s"]) + float(row["e2e_s"]) for row in rows)
    tpot = np.mean([float(row["tpot_ms"]) for row in rows if row["tpot_ms"]]) / 1e3
    ttft = np.mean([float(row["ttft_s"]) for row in rows])
    assert found.n_requests == 300
    assert found.tpot.mean == pytest.approx(tpot, rel=0.10)
    assert found.duration_s == pytest.approx(total, rel=0.05)
    assert found.ttft.mean == pytest.approx(ttft, rel=0.05)
    assert found.n_preemptions > 0
