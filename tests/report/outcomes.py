"""A made-up outcome with the columns of a real one: two GPUs, many layouts, one formula."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dse.base.digest import digest
from dse.pareto import front as judged
from dse.report.record import Funnel, Outcome
from dse.sim import LatencySketch
from dse.study import Study, Target, load_study

GPUS = {"h100-sxm": (3.35e12, 2.5, 700.0), "h200-sxm": (4.8e12, 3.2, 700.0)}
TOGETHER = (
    {"tp": 1},
    {"tp": 2},
    {"tp": 4},
    {"tp": 8},
    {"tp": 4, "pp": 2},
    {"tp": 8, "ep": 8},
    {"tp": 1, "dp": 8, "ep": 8},
)
APART = ({"prefill_tp": 4, "decode_tp": 1, "decode_dp": 4, "decode_ep": 4},)
CONTEXTS = ((1500, 500), (8192, 1024))
BATCHES = tuple(2**k for k in range(11))
WEIGHT_BYTES = 33e9
KV_BYTES = 2.6e5


@cache
def study() -> Study:
    """The study of the quick start, with a target: its GPUs are those of the rows."""
    root = Path(__file__).parents[2]
    found = load_study(root / "studies" / "quickstart.yaml")
    return replace(found, target=Target(req_per_s=50.0))


def outcome(**changes: Any) -> Outcome:
    """About 370 results, some infeasible, some apart, two near misses and details of the front."""
    asked: Study = changes.pop("study", study())
    results = changes.pop("rows", None)
    if results is None:
        results = pl.DataFrame(list(rows()), infer_schema_length=None)
    members = judged(results.filter("feasible"), asked.parts).filter("on_front")
    members = members.sort(asked.parts[0].column, descending=True, maintain_order=True)
    on_front = pl.col("point_id").is_in(members["point_id"].to_list())
    results = results.with_columns(on_front=on_front)
    facts: dict[str, Any] = {
        "study": asked,
        "results": results,
        "front": members,
        "near_misses": near_misses(),
        "funnel": Funnel(
            n_candidates=12_480,
            illegal={"heads": 3_120, "kv_heads": 240},
            killed={"hbm": 2_304, "tpot_floor": 1_152},
            screened={"mfu >= 0.3": 96},
            n_survivors=5_568,
            n_simulated=results.height - 20,
            n_reused=20,
            n_dropped_by_bound=5_568 - results.height,
            n_failed=2,
        ),
        "details": {point: detail(i) for i, point in enumerate(members["point_id"])},
        "certificate": {
            "valid": True,
            "statement": "no other survivor beats the front by more than 2%",
        },
        "sketches": sketches(results),
        "provenance": {
            "command": "dse run studies/made_up.yaml",
            "versions": {"dse": "0.1.0", "python": "3.12"},
            "catalog digest": "0123456789abcdef",
            "seeds": 3,
        },
    }
    return Outcome(**facts | changes)


def rows() -> Iterator[dict[str, Any]]:
    """One row a point: time of a step = weights / bandwidth + KV read / bandwidth + host."""
    for gpu, layout, (isl, osl), batch in product(GPUS, (*TOGETHER, *APART), CONTEXTS, BATCHES):
        row = point(gpu, dict(layout), isl, osl, batch)
        if row is not None:
            yield row


def point(
    gpu: str, layout: dict[str, int], isl: int, osl: int, batch: int
) -> dict[str, Any] | None:
    """One result row; None where the KV cache does not fit."""
    bandwidth, price, tdp = GPUS[gpu]
    apart = "decode_tp" in layout
    degrees = {"tp": 1, "dp": 1, "ep": 1, "pp": 1, "cp": 1} | layout
    before = "decode_" if apart else ""
    width = math.prod(degrees.get(f"{before}{name}", 1) for name in ("tp", "dp", "pp"))
    memory = (80e9 if "h100" in gpu else 141e9) * 0.9 * width
    used = WEIGHT_BYTES + batch * KV_BYTES * (isl + osl)
    if used > memory:
        return None
    read_s = (WEIGHT_BYTES + batch * KV_BYTES * (isl + osl / 2)) / (bandwidth * width)
    step_s = read_s * 1.15 + 1.2e-3 + 2e-4 * math.log2(width) + batch * 6e-6
    prefill_s = isl * 2 * WEIGHT_BYTES / (4e14 * width)
    tpot_s = step_s + (0.0 if apart else prefill_s * batch / osl)
    ttft_s = prefill_s * (1 + 0.3 * batch)
    replicas = 1 if apart else 8 // width
    rate = replicas * batch / (ttft_s + tpot_s * (osl - 1))
    p99_s = tpot_s * 1.08
    good = ttft_s * 1.3 <= 2.0 and tpot_s * 1.05 <= 0.04
    key = {"gpu": gpu, **degrees, "isl": isl, "osl": osl, "batch": batch}
    names = (
        {
            f"{role}_{d}": degrees.get(f"{role}_{d}", 1)
            for role in ("prefill", "decode")
            for d in ("tp", "dp", "ep", "pp", "cp")
        }
        if apart
        else {d: degrees[d] for d in ("tp", "dp", "ep", "pp", "cp")}
    )
    counts = (
        {"prefill_n_replicas": 1, "decode_n_replicas": 1} if apart else {"n_replicas": replicas}
    )
    per_gpu = rate * osl / 8
    return {
        "point_id": digest(key),
        "model": "made-33b",
        "gpu": gpu,
        "n_gpus": 8,
        "engine": "vllm@0.19",
        "weights": "bf16",
        "kv": "bf16",
        "branch": "apart" if apart else "together",
        **names,
        **counts,
        "isl_tokens": isl,
        "osl_tokens": osl,
        "batch": batch,
        "concurrency": batch * replicas,
        "ttft_mean_s": ttft_s,
        "ttft_p50_s": ttft_s * 0.9,
        "ttft_p95_s": ttft_s * 1.3,
        "ttft_p99_s": ttft_s * 1.4,
        "tpot_mean_s": tpot_s,
        "tpot_p50_s": tpot_s,
        "tpot_p95_s": tpot_s * 1.05,
        "tpot_p99_s": p99_s,
        "e2e_mean_s": ttft_s + tpot_s * (osl - 1),
        "request_per_s": rate,
        "goodput_req_per_s_per_gpu": rate / 8 if good else 0.0,
        "output_tok_per_s_per_gpu": per_gpu,
        "total_tok_per_s_per_gpu": per_gpu * (isl + osl) / osl,
        "tok_per_s_per_user": 1 / tpot_s,
        "usd_per_gpu_hour": price,
        "usd_per_mtok_output": price / (per_gpu * 3600) * 1e6,
        "tdp_watts": tdp,
        "idle_watts": tdp / 10,
        "slo_attainment": 1.0 if good else 0.4,
        "kv_peak_fraction": (used - WEIGHT_BYTES) / (memory - WEIGHT_BYTES),
        "mbu": read_s / step_s,
        "mfu": 0.1,
        "n_preemptions": 0,
        "joules_per_output_token": tdp / per_gpu,
        "status": "ok",
        "feasible": good,
    }


def near_misses() -> pl.DataFrame:
    """Two points just beyond a wall."""
    base = {
        "model": "made-33b",
        "n_gpus": 8,
        "n_replicas": 8,
        "tp": 1,
        "weights": "bf16",
        "kv": "bf16",
        "isl_tokens": 8192,
        "osl_tokens": 1024,
        "batch": 32,
    }
    return pl.DataFrame(
        [
            {
                **base,
                "point_id": "a" * 32,
                "gpu": "h100-sxm",
                "reason": "hbm",
                "demand": 74.1e9,
                "limit": 71.2e9,
                "unit": "B",
                "margin": 0.0407,
                "remedy": "tp=2, or kv: fp8",
            },
            {
                **base,
                "point_id": "b" * 32,
                "gpu": "h200-sxm",
                "reason": "tpot_floor",
                "demand": 0.052,
                "limit": 0.05,
                "unit": "s",
                "margin": 0.04,
                "remedy": "batch <= 28",
            },
        ]
    )


def detail(index: int) -> dict[str, Any]:
    """What is known of a front member: walls, breakdown, advice, floors against concurrency."""
    grid = [2**k for k in range(11)]
    return {
        "walls": {
            "wall_order": [
                {"wall": "kv_capacity", "concurrency": 96.0 + index},
                {"wall": "tpot_floor", "concurrency": 230.0 + index},
                {"wall": "flop", "concurrency": 410.0},
            ],
            "steps": {
                "decode": step(2e12 * (index + 1), 4e10, 0.0),
                "prefill": step(4e14, 3.5e10, 1e-3),
            },
        },
        "breakdown": [
            {"family": "attention", "seconds": 4e-3 + 1e-4 * index},
            {"family": "gemm", "seconds": 8e-3},
            {"family": "all_reduce", "seconds": 1.5e-3},
            {"family": "host", "seconds": 1.2e-3},
        ],
        "curve": [
            {"concurrency": c, "t_opt_s": 6e-3 + 1e-5 * c, "t_sum_s": 9e-3 + 2e-5 * c} for c in grid
        ],
        "advice": {
            "batch_cap": 96,
            "throughput_tok_per_s": 7900.0,
            "plateau_tok_per_s": 8100.0,
            "latency_s": 12.5,
            "kv_bytes_freed": 21e9,
            "limited_by": "plateau",
        },
    }


def step(flop: float, hbm_bytes: float, net_s: float) -> dict[str, Any]:
    """One step of the walls' account on a GPU of 989 TFLOP/s and 4.8 TB/s."""
    seconds = {"flop": flop / 989e12, "hbm": hbm_bytes / 4.8e12, "net": net_s}
    terms = [
        {"resource": "flop", "name": "gemm", "amount": flop, "unit": "FLOP"},
        {"resource": "hbm", "name": "weights", "amount": hbm_bytes, "unit": "B"},
    ]
    return {
        "t_opt_s": max(seconds.values()),
        "t_sum_s": sum(seconds.values()),
        "terms": [{**term, "seconds": seconds[str(term["resource"])]} for term in terms],
    }


def sketches(results: pl.DataFrame) -> pl.DataFrame:
    """Stored latencies of each point: 40 requests from half to 1.4 times the mean."""
    spread = np.linspace(0.5, 1.4, 40)
    names = ("ttft_code", "tpot_code", "e2e_code")
    found = []
    for row in results.iter_rows(named=True):
        held = LatencySketch.of(
            row["ttft_mean_s"] * spread,
            row["tpot_mean_s"] * (0.8 + spread * 0.2),
            row["e2e_mean_s"] * spread,
            0,
        )
        codes = {name: held.samples[:, i].tolist() for i, name in enumerate(names)}
        found.append({"point_id": row["point_id"], **codes, "n_requests": 40, "n_rejected": 0})
    return pl.DataFrame(found, schema_overrides=dict.fromkeys(names, pl.List(pl.UInt16)))
