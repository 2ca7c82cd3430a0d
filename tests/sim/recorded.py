"""Twenty runs whose results are recorded: `python -m tests.sim.recorded` writes recorded.json anew.

Write it together with a raised `SIM_VERSION`: a changed result under the old version would be taken
from a store as if it were the new.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.hardware import Link
from dse.serving.arrivals import AllAtOnce, ClosedLoop, ConstantRate, Gamma, Poisson
from dse.serving.deployment import SpeculativeDecoding
from dse.serving.layout import Layout
from dse.serving.lengths import Constant, Lognormal, Uniform
from dse.serving.routers import LeastLoaded, PrefixAware
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst, Static
from dse.serving.workload import Sessions, Stopping, Workload
from dse.sim import SIM_VERSION, RunSpec, simulate
from tests import worlds as models
from tests.sim.worlds import deployment, host, priced

FILE = Path(__file__).with_name("recorded.json")
LOAD = Workload(
    arrivals=ClosedLoop(concurrency=8),
    n_requests=40,
    isl=Uniform(low_tokens=4, high_tokens=60),
    osl=Lognormal(mean_tokens=20, cv=1.0, max_tokens=80),
)
DRAFTS = SpeculativeDecoding(method="draft", n_draft=3, acceptance=0.7)
FIGURES = (
    "duration_s",
    "n_steps",
    "n_preemptions",
    "prefix_hit_fraction",
    "mfu",
    "kv_peak_fraction",
)


def world(model: Any = None, **more: Any) -> RunSpec:
    facts: dict[str, Any] = {"host": host(1e-4, request_s=1e-6), "max_num_batched_tokens": 64}
    simple = model is None or model.name == "mixture"
    return priced(deployment(model=model, blocks=80 if simple else None, **facts | more))


def apart() -> RunSpec:
    together = deployment(host=host(1e-4), max_num_batched_tokens=64)
    pool = together.pools[0]
    link = Link(n_gpus=8, bytes_per_s=1e9, latency_s=1e-4, latency_floor_s=1e-5)
    pools = (replace(pool, role="prefill"), replace(pool, role="decode", n_replicas=2))
    return priced(replace(together, pools=pools, interconnect=link))


def runs() -> dict[str, tuple[RunSpec, Workload]]:
    """Name → compiled deployment and workload."""
    open_loop = {
        "poisson": Poisson(req_per_s=500.0),
        "gamma": Gamma(req_per_s=500.0, cv=3.0),
        "constant": ConstantRate(req_per_s=500.0),
        "all_at_once": AllAtOnce(),
    }
    stop = Stopping(max_requests=320, tolerance=0.1)
    turns = Sessions(turns=Uniform(low_tokens=1, high_tokens=4), think_s=0.01)
    return {
        "chunked": (world(), LOAD),
        "prefill_first": (world(scheduler=PrefillFirst()), LOAD),
        "static": (world(scheduler=Static()), LOAD),
        "shortest": (world(scheduler=ChunkedPrefill(policy="shortest")), LOAD),
        **{name: (world(), replace(LOAD, arrivals=a)) for name, a in open_loop.items()},
        "prefix": (world(), replace(LOAD, shared_prefix_tokens=16, n_prefixes=3)),
        "sessions": (world(), replace(LOAD, sessions=turns)),
        "preemption": (priced(deployment(blocks=40, host=host(1e-4))), LOAD),
        "speculation": (world(changes={"speculative": DRAFTS}), LOAD),
        "dp": (world(models.mixture(), layout=Layout(dp=2, ep=2)), LOAD),
        "pp": (world(layout=Layout(pp=2)), LOAD),
        "sliding": (world(models.sliding_hybrid()), LOAD),
        "linear": (world(models.linear_hybrid()), LOAD),
        "least_loaded": (world(n_replicas=2, changes={"router": LeastLoaded()}), LOAD),
        "prefix_aware": (
            world(n_replicas=2, changes={"router": PrefixAware()}),
            replace(LOAD, shared_prefix_tokens=16, n_prefixes=2),
        ),
        "apart": (apart(), replace(LOAD, osl=Constant(n_tokens=12))),
        "until_stable": (world(), replace(LOAD, stopping=stop)),
    }


def results() -> dict[str, Any]:
    """The figures of every run."""
    found: dict[str, Any] = {"sim_version": SIM_VERSION}
    for name, (spec, workload) in runs().items():
        metrics = simulate(None, workload, 0, spec=spec, path="auto")  # type: ignore[arg-type]
        row = {figure: getattr(metrics, figure) for figure in FIGURES}
        latencies = {
            f"{kind}_{part}_s": getattr(getattr(metrics, kind), part)
            for kind in ("ttft", "tpot", "itl", "e2e")
            for part in ("mean", "p99")
        }
        found[name] = row | latencies
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(results(), indent=1) + "\n", "utf-8")
