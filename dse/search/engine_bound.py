"""The engine bound: no simulation of a point is better, by the simulator's own times.

In a closed loop with room for all, who computes what in which step follows from order and from the
times of steps alone: the run is replayed without its blocks, energy and percentiles, for a small
part of what a simulation takes (`dse.sim.loop`), and the bound is the result but for rounding.

Elsewhere the schedule is ideal: batches always full, prompts cut only where the token budget cuts
them, KV reads exactly those of the realised requests, nothing queues but what the load itself
makes. Work is conserved per pool: steps that only decode take `least_per_request` for each of their
requests, steps with prompts what the hull of the tables says for the mean of their tokens, and
there are no more of the latter than prompts and full budgets (Jensen; a convex function of two
sums, of which a tangent plane is the bound). In a closed loop all requests in flight decode but
those that prefill, arrive or wait for the budget, so TPOT is that of the full batch, less what the
end of the run saves. A metric without such an argument is left null.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from dse.base.errors import DseError
from dse.search.envelope import Array
from dse.search.loop import closed_loop_tpot_s
from dse.search.loop_bound import RUNG as LOOP_RUNG
from dse.search.loop_bound import LoopBound
from dse.search.offered import Offered, attainment_at_most
from dse.search.prefix import most_on_time
from dse.search.question import Bound
from dse.search.steps import Line, Steps
from dse.search.work import Case, busy_s, first_tokens_s, one_of_equals, queueing_s, served_in_time
from dse.serving.deployment import Deployment
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import RunSpec, compile_run
from dse.sim.loop import Latencies, closed_loop, is_simple

Row = Mapping[str, Any]
Key = tuple[Any, ...]
WORK_RUNG, RUNG = "work", "engine"
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
    "slo_attainment",
)
_SCHEMA = pl.Schema(
    [("point", pl.UInt64), ("replicate", pl.Int32), *((name, pl.Float64) for name in METRICS)]
)
# Numbers of requests and compiled structures that are kept at hand.
_KEPT_REQUESTS, _KEPT_SPECS = 2_000_000, 4096
# Bounds of runs: each result is compared with its own, which was known before it was simulated.
_KEPT_BOUNDS = 100_000
# Attainment is read from a sketch of latencies, whose codes are rounded by half of 0.034%.
SKETCH_ROUNDING = 2e-4
_NO_SLO = SLO(attainment=0.0)


@dataclass(kw_only=True)
class EngineBound:
    """Optimistic metrics of rows of points, replicate by replicate.

    `deployments` is by structure, `workload_of` gives what a row asks, as for the simulator; with
    an `slo` its attainment is bounded too.
    """

    deployments: Mapping[int, Deployment]
    workload_of: Callable[[Row], Workload]
    replicates: int = 1
    tier: str = "auto"
    slo: SLO | None = None
    _specs: dict[int, RunSpec | None] = field(default_factory=dict, init=False)
    _offered: dict[Key, Offered | None] = field(default_factory=dict, init=False)
    _known: dict[Key, tuple[float | None, ...] | None] = field(default_factory=dict, init=False)
    _proofs: dict[Key, float] = field(default_factory=dict, init=False)

    def bounds(self) -> tuple[Bound, ...]:
        """Three rungs of a question: what a closed loop trades, for many points at once; by
        conservation of work; with the run replayed.
        """
        loop = LoopBound(
            spec_of=self._spec,
            workload_of=self.workload_of,
            offered=self._asked,
            replicates=self.replicates,
            slo=self.slo,
        )
        curve = loop.curve if self.replicates == 1 else None
        guess = partial(self._guess, loop, replace(loop, offered=self._as_if_measured))
        return (
            Bound(rung=LOOP_RUNG, of=loop, curve=curve, guess=guess),
            Bound(rung=WORK_RUNG, of=self._by_work),
            Bound(rung=RUNG, of=self, checked=self._unproven),
        )

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """`point`, `replicate` and `METRICS`; null where nothing is proved."""
        return self._frame(points, is_replayed=True)

    def _by_work(self, points: pl.DataFrame) -> pl.DataFrame:
        return self._frame(points, is_replayed=False)

    def _guess(self, loop: LoopBound, whole: LoopBound, points: pl.DataFrame) -> pl.DataFrame:
        """Likely metrics; where a run's start is not measured `loop` proves nothing, and `whole`
        guesses as if it were.
        """
        if points.is_empty():
            return loop.guess(points)
        offered = self._asked((self.workload_of(points.row(0, named=True)), 0))
        if offered is None or offered.means_cover_all:
            return loop.guess(points)
        return whole.guess(points, measures_burst=False)

    def _as_if_measured(self, key: tuple[Workload, int]) -> Offered | None:
        offered = self._asked(key)
        return None if offered is None else replace(offered, means_cover_all=True)

    def _unproven(self, points: pl.DataFrame) -> pl.DataFrame:
        """The same without what shorter runs prove of attainment, which no objective reads."""
        return self._frame(points, is_replayed=True, proves=False)

    def _frame(
        self, points: pl.DataFrame, *, is_replayed: bool, proves: bool = True
    ) -> pl.DataFrame:
        rows = [
            found
            for row in points.iter_rows(named=True)
            for found in self._rows(row, is_replayed, proves)
        ]
        return pl.DataFrame(rows, schema=_SCHEMA, orient="row")

    def _rows(self, row: Row, is_replayed: bool, proves: bool) -> Iterator[tuple[Any, ...]]:
        workload, structure = self.workload_of(row), row["structure"]
        for replicate in range(self.replicates):
            found = self._of_run(structure, workload, replicate, is_replayed=is_replayed)
            if found is None:
                found = self._short(structure, workload, replicate, proves=proves)
            yield row["point"], replicate, *found

    def _of_run(
        self, structure: int, workload: Workload, replicate: int, *, is_replayed: bool
    ) -> tuple[float | None, ...] | None:
        """The bounds of `METRICS` of one run; None where it cannot be replayed."""
        key = (structure, workload, replicate, is_replayed)
        if key not in self._known:
            if len(self._known) >= _KEPT_BOUNDS:
                self._known.clear()
            self._known[key] = self._values(structure, workload, replicate, is_replayed)
        return self._known[key]

    def _values(
        self, structure: int, workload: Workload, replicate: int, is_replayed: bool
    ) -> tuple[float | None, ...] | None:
        spec, offered = self._spec(structure), self._asked((workload, replicate))
        found = None
        if spec is not None and offered is not None and not is_replayed:
            found = floors(spec, offered, self.slo)
        elif spec is not None and offered is not None:
            found = replayed(spec, offered, self.slo)
            if found is None:
                return None
        return tuple(found.get(name) if found else None for name in METRICS)

    def _short(
        self, structure: int, workload: Workload, replicate: int, *, proves: bool
    ) -> tuple[Any, ...]:
        """What the rung before said, and what a shorter run proves if it is asked to."""
        known = self._of_run(structure, workload, replicate, is_replayed=False)
        assert known is not None
        spec, offered = self._spec(structure), self._asked((workload, replicate))
        place = METRICS.index("slo_attainment")
        box = known[place]
        if not proves or self.slo is None or spec is None or offered is None or box is None:
            return known
        if not (offered.is_plain and offered.concurrency and offered.means_cover_all):
            return known
        key = (structure, workload, replicate)
        if key not in self._proofs:
            if len(self._proofs) >= _KEPT_BOUNDS:
                self._proofs.clear()
            asked = (workload, replicate)
            deployment = self.deployments[structure]
            self._proofs[key] = most_on_time(deployment, spec, asked, offered, self.slo)
        return (*known[:place], min(box, self._proofs[key]), *known[place + 1 :])

    def _spec(self, structure: int) -> RunSpec | None:
        if structure not in self._specs:
            if len(self._specs) >= _KEPT_SPECS:
                self._specs.clear()
            self._specs[structure] = _compiled(self.deployments[structure], self.tier)
        return self._specs[structure]

    def _asked(self, key: tuple[Workload, int]) -> Offered | None:
        if key not in self._offered:
            self._offered[key] = Offered.of(*key)
            _forget(self._offered, _KEPT_REQUESTS)
        return self._offered[key]


def _compiled(deployment: Deployment, tier: str) -> RunSpec | None:
    try:
        return compile_run(deployment, tier)
    except DseError:
        # The simulator will say so as the point's own error.
        return None


def _forget(kept: dict[Key, Any], most: int) -> None:
    """Drop the oldest entries beyond `most` requests or cells, but never the newest."""
    total = sum(each.size for each in kept.values() if each is not None)
    for key in list(kept)[:-1]:
        if total <= most:
            return
        dropped = kept.pop(key)
        total -= dropped.size if dropped is not None else 0


def replayed(spec: RunSpec, offered: Offered, slo: SLO | None) -> dict[str, float] | None:
    """Metrics of one run as they are; None where the engine refuses some requests, or the run
    cannot be replayed.
    """
    if not spec.admits(int(offered.isl.max()), int(offered.osl.max())):
        return None
    spec, offered = one_of_equals(spec, offered)
    is_known = offered.concurrency > 0 and offered.is_plain and offered.means_cover_all
    has_prefix = bool((offered.new < offered.isl).any())
    if not is_known or has_prefix or not is_simple(spec):
        return None
    found = closed_loop(spec, offered.isl, offered.osl, offered.concurrency)
    return None if found is None else _of_latencies(spec, offered, found, slo or _NO_SLO)


def floors(spec: RunSpec, offered: Offered, slo: SLO | None) -> dict[str, float] | None:
    """Bounds of the metrics of one run, whatever its schedule; None where the engine refuses some
    requests.
    """
    if not spec.admits(int(offered.isl.max()), int(offered.osl.max())):
        return None
    spec, offered = one_of_equals(spec, offered)
    asked = slo or _NO_SLO
    q = spec.pools[-1].limits.q_tokens
    contexts = (float(offered.isl.min()) + 1.0, float((offered.isl + offered.osl).max()) + q)
    cases = [Case.of(pool, offered) for pool in spec.pools]
    latency = [_latency(case, contexts) for case in cases]
    first = first_tokens_s(cases[0], latency[0], offered)
    alone = _alone(latency[-1], offered, q)
    found = _of_floors(
        spec,
        offered,
        max(_busy(case, contexts) for case in cases),
        first,
        alone * (offered.osl - 1.0),
    )
    queued = queueing_s(cases[0], latency[0], offered, first)
    found["ttft_mean_s"] += queued
    found["e2e_mean_s"] += queued
    steady = closed_loop_tpot_s(spec, cases[-1], latency[-1], offered)
    if "tpot_mean_s" in found:
        found["tpot_mean_s"] = max(steady, found["tpot_mean_s"])
    late = 1.0 - served_in_time(cases[0], latency[0], offered, asked.ttft_s)
    good = _share_good(first, alone, first + alone * (offered.osl - 1.0), asked)
    if offered.means_cover_all:
        most = min(good, 1.0 - late) * offered.n
        found["slo_attainment"] = attainment_at_most(most, offered.n)
    return found


def _of_latencies(spec: RunSpec, offered: Offered, found: Latencies, slo: SLO) -> dict[str, float]:
    decoding = offered.osl > 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(decoding, (found.e2e_s - found.ttft_s) / (offered.osl - 1.0), np.nan)
    good = _share_good(found.ttft_s, tpot, found.e2e_s, slo)
    metrics = _rates(spec, offered, found.duration_s) | {
        "ttft_mean_s": float(found.ttft_s.mean()),
        "ttft_p99_s": float(np.percentile(found.ttft_s, 99)),
        "e2e_mean_s": float(found.e2e_s.mean()),
        "slo_attainment": attainment_at_most(good * offered.n, offered.n),
    }
    if decoding.any():
        metrics["tpot_mean_s"] = float(tpot[decoding].mean())
        metrics["tpot_p99_s"] = float(np.percentile(tpot[decoding], 99))
    return metrics


def _of_floors(
    spec: RunSpec, offered: Offered, busy: float, first: Array, decode: Array
) -> dict[str, float]:
    whole = first + decode
    duration = max(busy, offered.last_s + float(whole.min()), float(whole.max()))
    if offered.concurrency:
        # Little's law over the run: at most so many are in flight.
        duration = max(duration, float(whole.sum()) / offered.concurrency)
    decoding = offered.osl > 1.0
    over = np.mean if offered.means_cover_all else np.min
    found = _rates(spec, offered, duration) | {
        "ttft_mean_s": float(over(first)),
        "ttft_p99_s": float(first.min()),
        "e2e_mean_s": float(over(whole)),
    }
    if decoding.any():
        tpot = decode[decoding] / (offered.osl[decoding] - 1.0)
        found |= {"tpot_mean_s": float(over(tpot)), "tpot_p99_s": float(tpot.min())}
    return found


def _rates(spec: RunSpec, offered: Offered, duration_s: float) -> dict[str, float]:
    """What a run of at least `duration_s` seconds gives at most."""
    output, prompts = float(offered.osl.sum()), float(offered.isl.sum())
    per_s = 1.0 / duration_s / spec.n_gpus
    return {
        "output_tok_per_s_per_gpu": output * per_s,
        "total_tok_per_s_per_gpu": (output + prompts) * per_s,
        "goodput_req_per_s_per_gpu": offered.n * per_s,
        "joules_per_output_token": duration_s * _idle_watts(spec) / output,
    }


def _share_good(ttft_s: Array, tpot_s: Array, e2e_s: Array, slo: SLO) -> float:
    """The share of requests that may meet every bound; an undefined latency meets any."""
    good = np.ones(len(ttft_s), dtype=bool)
    for values, bound in ((ttft_s, slo.ttft_s), (tpot_s, slo.tpot_s), (e2e_s, slo.e2e_s)):
        if bound is not None:
            good &= ~(values > bound * (1.0 + SKETCH_ROUNDING))
    return float(good.mean())


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
