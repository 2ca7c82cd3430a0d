"""Times of requests and sums over steps → one row of results.

TTFT = arrival → first output token, queueing included; TPOT = (E2E − TTFT) / (OSL − 1) per request,
undefined for OSL = 1; ITL = each gap between consecutive tokens; E2E = arrival → last token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.serving.slo import SLO
from dse.sim.outcome import Outcome
from dse.sim.sketch import LatencySketch
from dse.sim.spec import PoolSpec, RunSpec
from dse.sim.totals import GAP_BINS, Totals, gap_seconds
from dse.sim.traffic import Requests

Floats = NDArray[np.float64]
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A latency in seconds: mean and percentiles; NaN where no request defines it."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Floats) -> "Spread":
        """Mean and percentiles of `values`, those that are NaN left out."""
        found = values[~np.isnan(values)]
        if not len(found):
            return cls(**dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), float("nan")))
        p50, p90, p95, p99 = np.percentile(found, PERCENTILES).tolist()
        return cls(mean=float(found.mean()), p50=p50, p90=p90, p95=p95, p99=p99)

    @classmethod
    def of_gaps(cls, counts: NDArray[np.int64]) -> "Spread":
        """Mean and percentiles of binned gaps, each within 0.2% of the exact one."""
        used = np.flatnonzero(counts)
        values = np.array([gap_seconds(int(i)) for i in used])
        weights = counts[used]
        if not len(used):
            return cls.of(np.array([]))
        reached = np.cumsum(weights) / weights.sum()
        p50, p90, p95, p99 = (
            float(values[np.searchsorted(reached, p / 100.0)]) for p in PERCENTILES
        )
        mean = float((values * weights).sum() / weights.sum())
        return cls(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99)


@dataclass(frozen=True, kw_only=True)
class PointMetrics:
    """What one run shows. Rates count all GPUs of the deployment; `_per_gpu` divide by all of them.

    `batch_mean` is requests per step and replica, `kv_*_fraction` of a rank's pool. `mfu` and `mbu`
    are model FLOP and bytes of weights and KV over peak, in wall time. `step_breakdown` splits the
    busy seconds of the mean replica by op family, `resource_breakdown` by what bounds them.
    `served_by` names the path (`fast` or `reference`) and `served_because` why not the fast one:
    neither is in a row, since both paths give the same. `stopped` is `fixed`, `stable` or `cap`.
    """

    ttft: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    queue: Spread
    duration_s: float
    request_per_s: float
    input_tok_per_s: float
    output_tok_per_s: float
    total_tok_per_s: float
    output_tok_per_s_per_gpu: float
    total_tok_per_s_per_gpu: float
    tok_per_s_per_user: float
    n_requests: int
    n_measured: int
    n_rejected: int
    n_preemptions: int
    n_steps: int
    n_gpus: int
    prefix_hit_fraction: float
    batch_mean: float
    kv_peak_fraction: float
    kv_mean_fraction: float
    mfu: float
    mbu: float
    energy_joules: float
    joules_per_output_token: float
    step_breakdown: dict[str, float]
    resource_breakdown: dict[str, float]
    latency_sketch: LatencySketch
    kernels_id: str
    served_by: str = field(default="reference", compare=False)
    served_because: str = field(default="", compare=False)
    stopped: str = "fixed"

    def slo_attainment(self, slo: SLO) -> float:
        """Share of requests that meet every bound of `slo` at once."""
        return self.latency_sketch.attainment(slo)

    def goodput_req_per_s(self, slo: SLO) -> float:
        """Requests per second that meet every bound of `slo`."""
        total = self.n_requests + self.n_rejected
        asked_per_s = self.request_per_s * total / self.n_requests if self.n_requests else 0.0
        return asked_per_s * self.slo_attainment(slo)

    def to_row(self) -> dict[str, Any]:
        """One flat row: `ttft_p99_s` and so on, breakdowns as dicts, the sketch as bytes."""
        row: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Spread):
                for part in fields(value):
                    row[f"{each.name}_{part.name}_s"] = getattr(value, part.name)
            elif isinstance(value, LatencySketch):
                row[each.name] = value.to_bytes()
            elif each.compare:
                row[each.name] = value
        return row


def point_metrics(
    spec: RunSpec,
    requests: Requests,
    outcome: Outcome,
    measured: NDArray[np.bool_],
    *,
    n_rejected: int = 0,
    copies: int = 1,
    served: tuple[str, str] = ("reference", ""),
) -> PointMetrics:
    """Sum up a run of one of `copies` equal parts of a deployment; `measured` marks the requests
    whose latencies count, `n_rejected` more were refused by all parts together.
    """
    ttft = outcome.first_token_s - outcome.asked_s
    e2e = outcome.finish_s - outcome.asked_s
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(requests.osl_tokens > 1, (e2e - ttft) / (requests.osl_tokens - 1), np.nan)
    n, n_gpus = len(requests), spec.n_gpus * copies
    duration = float(outcome.finish_s.max() - outcome.asked_s.min()) if n else 0.0
    output = float(requests.osl_tokens.sum()) * copies / duration if duration else 0.0
    prompt = float(requests.isl_tokens.sum()) * copies / duration if duration else 0.0
    tpot_spread = Spread.of(tpot[measured])
    gaps = sum((t.gaps for t in outcome.totals), np.zeros(GAP_BINS, dtype=np.int64))
    use = _utilisation(spec.pools, outcome.totals, duration)
    occupancy = _occupancy(spec.pools, outcome.totals)
    families, resources = _breakdown(spec.pools, outcome.totals)
    return PointMetrics(
        ttft=Spread.of(ttft[measured]),
        tpot=tpot_spread,
        itl=Spread.of_gaps(gaps),
        e2e=Spread.of(e2e[measured]),
        queue=Spread.of((outcome.admitted_s - outcome.asked_s)[measured]),
        duration_s=duration,
        request_per_s=n * copies / duration if duration else 0.0,
        input_tok_per_s=prompt,
        output_tok_per_s=output,
        total_tok_per_s=prompt + output,
        output_tok_per_s_per_gpu=output / n_gpus,
        total_tok_per_s_per_gpu=(prompt + output) / n_gpus,
        tok_per_s_per_user=1.0 / tpot_spread.mean if tpot_spread.mean > 0 else float("nan"),
        n_requests=n * copies,
        n_measured=int(measured.sum()) * copies,
        n_rejected=n_rejected,
        n_preemptions=int(outcome.n_preemptions.sum()) * copies,
        n_steps=sum(t.n_steps for t in outcome.totals),
        n_gpus=n_gpus,
        prefix_hit_fraction=float(outcome.hit_tokens.sum() / max(1, requests.isl_tokens.sum())),
        batch_mean=occupancy["batch"],
        kv_peak_fraction=occupancy["kv_peak"],
        kv_mean_fraction=occupancy["kv_mean"],
        mfu=use["mfu"],
        mbu=use["mbu"],
        energy_joules=use["joules"] * copies,
        joules_per_output_token=use["joules"] / max(1.0, float(requests.osl_tokens.sum())),
        step_breakdown=families,
        resource_breakdown=resources,
        latency_sketch=LatencySketch.of(
            ttft[measured], tpot[measured], e2e[measured], n_rejected, copies
        ),
        kernels_id="/".join(pool.cost.kernels_id for pool in spec.pools),
        served_by=served[0],
        served_because=served[1],
    )


def _occupancy(pools: Sequence[PoolSpec], totals: Sequence[Totals]) -> dict[str, float]:
    """Batch and KV of the pool that decodes (the last)."""
    pool, total = pools[-1], totals[-1]
    busy = total.busy_s or 1.0
    return {
        "batch": total.seqs_s / busy,
        "kv_peak": total.kv_peak / pool.kv.n_units,
        "kv_mean": total.kv_s / busy / pool.dp / pool.kv.n_units,
    }


def _utilisation(
    pools: Sequence[PoolSpec], totals: Sequence[Totals], duration_s: float
) -> dict[str, float]:
    """MFU and MBU over all GPUs, and joules: idle power, and the rest in proportion to the more
    used of arithmetic and HBM.
    """
    gpus = sum(pool.n_gpus for pool in pools)
    found = {"mfu": 0.0, "mbu": 0.0, "joules": 0.0}
    for pool, total in zip(pools, totals, strict=True):
        per_gpu_s = (duration_s or 1.0) * pool.n_replicas
        mfu = total.tally.flop_seconds(pool.cost) / per_gpu_s
        mbu = total.tally.hbm_bytes(pool.cost) / pool.hbm_bytes_per_s / per_gpu_s
        idle, full = pool.watts
        found["mfu"] += mfu * pool.n_gpus / gpus
        found["mbu"] += mbu * pool.n_gpus / gpus
        watts = idle + (full - idle) * min(1.0, max(mfu, mbu))
        found["joules"] += watts * pool.n_gpus * duration_s
    return found


def _breakdown(
    pools: Sequence[PoolSpec], totals: Sequence[Totals]
) -> tuple[dict[str, float], dict[str, float]]:
    families: dict[str, float] = {}
    resources: dict[str, float] = {}
    for pool, total in zip(pools, totals, strict=True):
        parts = {k: s / pool.n_replicas for k, s in total.tally.parts(pool.cost).items()}
        parts["host", "host"] = total.host_s / pool.n_replicas
        busy = total.busy_s / pool.n_replicas
        parts["wait", "wait"] = max(0.0, busy - sum(parts.values()))
        for (family, resource), seconds in parts.items():
            families[family] = families.get(family, 0.0) + seconds
            resources[resource] = resources.get(resource, 0.0) + seconds
    return _sorted(families), _sorted(resources)


def _sorted(seconds: dict[str, float]) -> dict[str, float]:
    return {key: seconds[key] for key in sorted(seconds, key=lambda key: -seconds[key])}
