"""simulate(deployment, workload, seed) → PointMetrics: pure, and the same on any machine."""

from dataclasses import replace
from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dse.base.errors import UserError
from dse.serving.deployment import Deployment
from dse.serving.workload import Workload
from dse.sim.fast import pays, run_fast, unsupported
from dse.sim.log import Log
from dse.sim.metrics import PointMetrics, point_metrics
from dse.sim.outcome import Outcome
from dse.sim.reference import run_reference
from dse.sim.spec import RunSpec, compile_run
from dse.sim.steady import steady
from dse.sim.traffic import Requests, realised_requests

# Raise it whenever a change moves any result; tests/sim/recorded.json holds it to that.
SIM_VERSION = 2

Path = Literal["auto", "fast", "reference"]


def simulate(
    deployment: Deployment,
    workload: Workload,
    seed: int = 0,
    *,
    tier: str = "auto",
    requests: Requests | None = None,
    spec: RunSpec | None = None,
    path: Path = "auto",
    log: Log | None = None,
) -> PointMetrics:
    """Serve `workload` by `deployment` in virtual time.

    Replicate `seed` fixes the requests, whatever the deployment; `requests` gives them if they are
    at hand, `spec` the compiled deployment. A `log` is filled with events, by the reference path.
    IllegalError where the deployment has no room for KV, UserError where every request is refused.
    """
    compiled = compile_run(deployment, tier) if spec is None else spec
    run = _Runs(compiled, workload, path, log)
    wanted = workload.stopping.max_requests
    if requests is not None or wanted is None:
        found = realised_requests(workload, seed) if requests is None else requests
        return run.one(found)
    n = workload.n_requests
    before = run.one(realised_requests(workload, seed, n))
    while n < wanted:
        n = min(2 * n, wanted)
        after = run.one(realised_requests(workload, seed, n))
        if _is_stable(before, after, workload.stopping.tolerance):
            return replace(after, stopped="stable")
        before = after
    return replace(before, stopped="cap")


class _Runs:
    """Runs of one compiled deployment and workload."""

    def __init__(self, spec: RunSpec, workload: Workload, path: Path, log: Log | None) -> None:
        self.spec, self.workload, self.path, self.log = spec, workload, path, log

    def one(self, requests: Requests) -> PointMetrics:
        accepted, n_rejected = _accepted(self.spec, requests)
        spec, part, copies = _one_of_equals(self.spec, accepted)
        outcome, served = self._serve(spec, part)
        measured = np.ones(len(part), dtype=bool)
        if self.workload.is_steady:
            measured = steady(part, outcome)
        return point_metrics(
            spec,
            part,
            outcome,
            measured,
            n_rejected=n_rejected,
            copies=copies,
            served=served,
        )

    def _serve(self, spec: RunSpec, requests: Requests) -> tuple[Outcome, tuple[str, str]]:
        why = self._why_reference(spec, requests)
        if not why:
            return run_fast(spec, requests), ("fast", "")
        if self.path == "fast":
            raise UserError(f"the fast path does not serve this run: {why}", "use path auto")
        return run_reference(spec, requests, self.log), ("reference", why)

    def _why_reference(self, spec: RunSpec, requests: Requests) -> str:
        if self.path == "reference":
            return "asked for"
        if self.log is not None:
            return "an event log was asked for"
        why = unsupported(spec, requests)
        if why or self.path == "fast":
            return why
        return "" if pays(requests) else "not yet compiled"


def _accepted(spec: RunSpec, requests: Requests) -> tuple[Requests, int]:
    """The requests that the engines take, and the number of those they refuse."""
    admits: dict[tuple[int, int], bool] = {}
    taken = np.ones(len(requests), dtype=bool)
    pairs = zip(requests.isl_tokens.tolist(), requests.osl_tokens.tolist(), strict=True)
    longest = (int(requests.isl_tokens.max()), int(requests.osl_tokens.max()))
    if spec.admits(*longest):
        return requests, 0
    for i, pair in enumerate(pairs):
        if pair not in admits:
            admits[pair] = spec.admits(*pair)
        taken[i] = admits[pair]
    if not taken.any():
        raise UserError(
            f"all {len(requests)} requests are refused: the shortest has "
            f"{int((requests.isl_tokens + requests.osl_tokens).min())} tokens, the model's context "
            f"is {spec.max_context_tokens} and the KV pool "
            f"{min(pool.kv.n_units for pool in spec.pools)} units",
            "shorten the requests or give KV more memory",
        )
    kept = np.flatnonzero(taken)
    return requests.take(kept, requests.concurrency), int(len(requests) - len(kept))


def _one_of_equals(spec: RunSpec, requests: Requests) -> tuple[RunSpec, Requests, int]:
    """Equal replicas behind a stateless router take equal shares: one stands for all."""
    copies = gcd(*(pool.n_replicas for pool in spec.pools))
    roots = requests.follows < 0
    uneven = requests.concurrency % copies if requests.concurrency else 0
    if copies == 1 or not spec.router.is_stateless or uneven or roots.sum() < copies:
        return spec, requests, 1
    kept = np.flatnonzero(_root_number(requests) % copies == 0)
    pools = tuple(
        replace(p, n_replicas=p.n_replicas // copies, n_gpus=p.n_gpus // copies) for p in spec.pools
    )
    part = requests.take(kept, requests.concurrency // copies)
    return replace(spec, pools=pools), part, copies


def _root_number(requests: Requests) -> NDArray[np.int64]:
    """Which first turn each request descends from; turns of a conversation stand together."""
    numbers: NDArray[np.int64] = np.cumsum(requests.follows < 0) - 1
    return numbers


def _is_stable(before: PointMetrics, after: PointMetrics, tolerance: float) -> bool:
    pairs = ((before.ttft.p99, after.ttft.p99), (before.tpot.p99, after.tpot.p99))
    return all(not abs(b - a) > tolerance * abs(a) for a, b in pairs)
