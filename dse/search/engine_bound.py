"""The engine bound: no simulation of a point is better, by the simulator's own times.

The schedule behind it is ideal: batches always full, prompts cut only where the token budget cuts
them, KV reads exactly those of the realised requests, nothing queues but what the load itself
makes. Work is conserved per pool: steps that only decode take `least_per_request` for each of their
requests, steps with prompts what the hull of the tables says for the mean of their tokens, and
there are no more of the latter than prompts and full budgets (Jensen; a convex function of two
sums, of which a tangent plane is the bound). In a closed loop all requests in flight decode but
those that prefill, arrive or wait for the budget, so TPOT is that of the full batch, less what the
end of the run saves. A metric without such an argument is left null.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from dse.base.errors import DseError
from dse.search.envelope import Array
from dse.search.loop import closed_loop_tpot_s
from dse.search.offered import Offered
from dse.search.question import Bound
from dse.search.steps import Line, Steps
from dse.search.work import Case, busy_s, first_tokens_s, one_of_equals, queueing_s
from dse.serving.deployment import Deployment
from dse.serving.workload import Workload
from dse.sim import RunSpec, compile_run

Row = Mapping[str, Any]
RUNG = "engine"
METRICS = (
    "output_tok_per_s_per_gpu",
    "total_tok_per_s_per_gpu",
    "goodput_req_per_s_per_gpu",
    "tpot_mean_s",
    "tpot_p99_s",
    "ttft_mean_s",
    "ttft_p99_s",
    "e2e_mean_s",
    "joules_per_output_token",
)
_SCHEMA = pl.Schema(
    [("point", pl.UInt64), ("replicate", pl.Int32), *((name, pl.Float64) for name in METRICS)]
)


@dataclass(kw_only=True)
class EngineBound:
    """Optimistic metrics of rows of points, replicate by replicate.

    `deployments` is by structure, `workload_of` gives what a row asks, as for the simulator.
    """

    deployments: Mapping[int, Deployment]
    workload_of: Callable[[Row], Workload]
    replicates: int = 1
    tier: str = "auto"
    _specs: dict[int, RunSpec | None] = field(default_factory=dict, init=False)
    _offered: dict[tuple[Workload, int], Offered | None] = field(default_factory=dict, init=False)

    def bound(self) -> Bound:
        """This as a rung of a question."""
        return Bound(rung=RUNG, of=self)

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """`point`, `replicate` and `METRICS`; null where nothing is proved."""
        rows = [found for row in points.iter_rows(named=True) for found in self._rows(row)]
        return pl.DataFrame(rows, schema=_SCHEMA, orient="row")

    def _rows(self, row: Row) -> Iterator[tuple[Any, ...]]:
        spec = self._spec(row["structure"])
        workload = self.workload_of(row)
        for replicate in range(self.replicates):
            offered = self._asked(workload, replicate)
            found = optimistic(spec, offered) if spec and offered else None
            values = [found.get(name) if found else None for name in METRICS]
            yield row["point"], replicate, *values

    def _spec(self, structure: int) -> RunSpec | None:
        if structure not in self._specs:
            try:
                spec: RunSpec | None = compile_run(self.deployments[structure], self.tier)
            except DseError:
                # The simulator will say so as the point's own error.
                spec = None
            self._specs[structure] = spec
        return self._specs[structure]

    def _asked(self, workload: Workload, replicate: int) -> Offered | None:
        key = (workload, replicate)
        if key not in self._offered:
            self._offered[key] = Offered.of(workload, replicate)
        return self._offered[key]


def optimistic(spec: RunSpec, offered: Offered) -> dict[str, float] | None:
    """Bounds of the metrics of one run; None where the engine refuses some requests."""
    longest = (int(offered.isl.max()), int(offered.osl.max()))
    if not spec.admits(*longest):
        return None
    spec, offered = one_of_equals(spec, offered)
    q = spec.pools[-1].limits.q_tokens
    contexts = (float(offered.isl.min()) + 1.0, float((offered.isl + offered.osl).max()) + q)
    cases = [Case.of(pool, offered) for pool in spec.pools]
    busy = max(_busy(case, contexts) for case in cases)
    latency = [_latency(case, contexts) for case in cases]
    first = first_tokens_s(cases[0], latency[0], offered)
    queued = queueing_s(cases[0], latency[0], offered, first)
    alone = _alone(latency[-1], offered, q)
    tpot = closed_loop_tpot_s(spec, cases[-1], latency[-1], offered)
    return _metrics(spec, offered, busy, first, queued, alone, tpot)


def _metrics(
    spec: RunSpec,
    offered: Offered,
    busy: float,
    first: Array,
    queued: float,
    alone: Array,
    tpot: float,
) -> dict[str, float]:
    whole = first + alone * (offered.osl - 1.0)
    duration = max(busy, offered.last_s + float(whole.min()), float(whole.max()))
    if offered.concurrency:
        # Little's law over the run: at most so many are in flight.
        duration = max(duration, float(whole.sum()) / offered.concurrency)
    output, prompts = float(offered.osl.sum()), float(offered.isl.sum())
    decoding = offered.osl > 1.0
    over = np.mean if offered.means_cover_all else np.min
    found = {
        "output_tok_per_s_per_gpu": output / duration / spec.n_gpus,
        "total_tok_per_s_per_gpu": (output + prompts) / duration / spec.n_gpus,
        "goodput_req_per_s_per_gpu": offered.n / duration / spec.n_gpus,
        "ttft_mean_s": float(over(first)) + queued,
        "ttft_p99_s": float(first.min()),
        "e2e_mean_s": float(over(whole)) + queued,
        "joules_per_output_token": duration * _idle_watts(spec) / output,
    }
    if decoding.any():
        found["tpot_mean_s"] = max(tpot, float(over(alone[decoding])))
        found["tpot_p99_s"] = float(alone[decoding].min())
    return found


def _idle_watts(spec: RunSpec) -> float:
    return sum(pool.watts[0] * pool.n_gpus for pool in spec.pools)


def _busy(case: Case, contexts: tuple[float, float]) -> float:
    """Seconds that the pool is busy at least: the tightest of its stages."""
    stages = np.eye(len(case.pool.cost.tables.stage_count))
    lines = [Line.of(case.pool.cost, weights) for weights in stages]
    return max(busy_s(case, Steps.of(case.pool, line, contexts, case.batch)) for line in lines)


def _latency(case: Case, contexts: tuple[float, float]) -> Steps:
    line = Line.of(case.pool.cost, case.pool.cost.tables.stage_count)
    return Steps.of(case.pool, line, contexts, max(case.batch, 1.0))


def _alone(steps: Steps, offered: Offered, tokens_per_step: int) -> Array:
    """Seconds per output token of each request if it decoded alone."""
    one = np.ones(offered.n)
    context = offered.isl + (offered.osl / 2.0 if tokens_per_step == 1 else 0.0)
    if steps.spec.dp > 1:
        # Its own context reads from the rank that it is on.
        return steps.seconds(one, context * steps.spec.dp) / tokens_per_step
    return steps.seconds(one, context) / tokens_per_step
