"""The first rung by the simulator's own times: closed loops of many points at once (see `trade`).

It knows what a run asks in sums alone, so that a pool and a load are worked out once, whatever the
number of points that share them. Loads that are no plain closed loop are left open.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from dse.search.curves import CORNERS, Loops
from dse.search.envelope import Array
from dse.search.likely import likely
from dse.search.loop_cases import SLACK, Cases, CasesOf, Row
from dse.search.mean_field import MeanField, Steady
from dse.search.offered import Offered, may_be_late
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import RunSpec

RUNG = "loop"
METRICS = (
    "output_tok_per_s_per_gpu",
    "total_tok_per_s_per_gpu",
    "goodput_req_per_s_per_gpu",
    "tpot_mean_s",
    "ttft_mean_s",
    "e2e_mean_s",
    "joules_per_output_token",
    "slo_attainment",
)


@dataclass(frozen=True, slots=True)
class _Worked:
    """Cases, their loops, and the seconds of all requests in flight, at least."""

    cases: Cases
    loops: Loops
    in_flight_s: Array

    @classmethod
    def of(cls, cases: Cases) -> "_Worked":
        """What takes no SLO to know."""
        busy_s, extra_s = _busy_s(cases, cases.n, cases.new, cases.decode_steps)
        lowest = cases.decode.each(lambda rates: rates.contexts[0])
        loops = Loops(
            rates=cases.decode,
            n=cases.n,
            steps=cases.decode_steps,
            beyond=cases.context_sum - lowest * cases.decode_steps,
            concurrency=cases.concurrency,
            replicas=cases.n_decode,
            before_s=cases.alone_s + cases.transfer_s,
            busy_s=busy_s,
            extra_s=extra_s,
        )
        # Until the last one is asked the loop is full, and by then all but those in flight are
        # done.
        concurrency = np.minimum(cases.concurrency, cases.n)
        n, new, steps = cases.settled_n, cases.settled_new, cases.settled_steps
        settled_s, _ = _busy_s(replace(cases, concurrency=concurrency), n, new, steps)
        per_s = cases.decode.steps_per_s(concurrency / cases.n_decode)
        settled_s = np.maximum(settled_s, steps / per_s / cases.n_decode)
        return cls(cases, loops, concurrency * settled_s)


def _busy_s(cases: Cases, n: Array, new: Array, steps: Array) -> tuple[Array, Array]:
    """Seconds that `n` requests of so many prompt tokens and decode steps keep a run busy, at
    least, and what their prompts add to the work of replicas that decode as well.
    """
    busy_s, extra_s = new * cases.token_s, np.zeros_like(new)
    in_flight = cases.concurrency / cases.n_decode
    for rates, rows in cases.decode.groups:
        # Points that decode on one kind of pool either all compute prompts there, or none does.
        is_bound = rates.pool.pp > 1 or cases.is_shared[rows.start]
        for each in rates.shared if is_bound else ():
            decoded = rates.pool.limits.q_tokens * steps[rows]
            added_s = each.added_s(n[rows], new[rows], decoded) * cases.is_shared[rows]
            if rates.pool.pp == 1:
                extra_s[rows] = added_s
            stage_s = steps[rows] / each.per_s.at(in_flight[rows]) + added_s
            busy_s[rows] = np.maximum(busy_s[rows], stage_s / cases.n_decode[rows])
    return busy_s, extra_s


@dataclass(kw_only=True)
class LoopBound:
    """Optimistic metrics of rows of points, and their curves of throughput against TPOT.

    `spec_of` gives the compiled structure, `offered` the requests of a workload's replicate.
    """

    spec_of: Callable[[int], RunSpec | None]
    workload_of: Callable[[Row], Workload]
    offered: Callable[[tuple[Workload, int]], Offered | None]
    replicates: int = 1
    slo: SLO | None = None
    _last: tuple[Any, _Worked | None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._mean_field = MeanField()
        self._cases = CasesOf(
            spec_of=self.spec_of,
            workload_of=self.workload_of,
            offered=self.offered,
            slo=self.slo,
        )

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """`point`, `replicate` and `METRICS`: the box around each curve; null where it is open."""
        frames = []
        for replicate in range(self.replicates):
            # A curve of one corner: the fastest run there may be, and the least of all else.
            values = self._values(points, replicate, 1, keeps=False)
            frames.append(_frame(points["point"], replicate, values))
        return pl.concat(frames)

    def curve(self, points: pl.DataFrame) -> pl.DataFrame:
        """`point` and `METRICS`, a row a corner: each run is no better than one of its point's
        corners, if it keeps the SLO. Means over several replicates lie on no curve, so there must
        be one.
        """
        values = self._values(points, 0, CORNERS, keeps=True)
        repeated = points["point"].gather(np.repeat(np.arange(points.height), CORNERS))
        return _frame(repeated, 0, values)

    def guess(self, points: pl.DataFrame, *, measures_burst: bool = True) -> pl.DataFrame:
        """`point`, `METRICS` as they are likely to be (see `mean_field`), and `strain` (see
        `likely`). `measures_burst`: latencies of the loop's start count.
        """
        worked = self._work(points, 0)
        found = {name: np.full(points.height, np.nan) for name in METRICS}
        burst, first = np.zeros(points.height), np.full((2, points.height), np.nan)
        if worked is not None:
            cases, steady = worked.cases, self._mean_field(worked.cases)
            for name, each in _even(cases, steady, measures_burst=measures_burst).items():
                found[name][cases.place] = each
            first[:, cases.place] = steady.own_s, steady.queue_s
            if measures_burst:
                burst[cases.place] = np.minimum(cases.concurrency, cases.n) / cases.n
        values = likely(points, found, self.slo, burst, (first[0], first[1]))
        return _frame(points["point"], 0, values)

    def _values(
        self, points: pl.DataFrame, replicate: int, n_corners: int, *, keeps: bool
    ) -> dict[str, Array]:
        """The metrics by point and corner; `keeps`: of runs that keep the SLO."""
        worked = self._work(points, replicate)
        found = {name: np.full((points.height, n_corners), np.nan) for name in METRICS}
        if worked is not None:
            for name, each in _metrics(worked, self.slo, n_corners, keeps=keeps).items():
                found[name][worked.cases.place] = each
        return found

    def _work(self, points: pl.DataFrame, replicate: int) -> _Worked | None:
        """The cases of the points and their loops; None where nothing is known."""
        key = (replicate, points["point"].to_numpy().tobytes())
        if self._last is None or self._last[0] != key:
            # A box and its curve ask for the same.
            cases = self._cases(points, replicate)
            self._last = key, None if cases is None else _Worked.of(cases)
        return self._last[1]


def _metrics(worked: _Worked, slo: SLO | None, n_corners: int, *, keeps: bool) -> dict[str, Array]:
    """The metrics by case and corner."""
    cases, loops = worked.cases, worked.loops
    n, steps, longest = cases.n, cases.decode_steps, cases.longest_decode
    q = cases.decode.each(lambda rates: rates.pool.limits.q_tokens)
    if keeps and slo is not None and slo.tpot_s is not None:
        # The requests that may be late are, at worst, the longest ones.
        numbers, which = np.unique(n, return_inverse=True)
        late = np.array([may_be_late(int(each), slo.attainment) for each in numbers])[which]
        kept = loops.within(slo.tpot_s * SLACK, late * longest / steps)
        loops = replace(loops, busy_s=np.where(q == 1, kept.busy_s, loops.busy_s))
    duration_s, step_s = loops.corners(n_corners)
    least = cases.decode.each(lambda rates: rates.least_s)
    weight = steps / n / longest
    tpot = (least / q + cases.transfer_s / longest)[:, None]
    per_s = 1.0 / duration_s / cases.n_gpus[:, None]
    output = cases.output[:, None]
    in_time = cases.in_time
    if slo is not None and slo.tpot_s is not None:
        in_time = np.where(least / q > slo.tpot_s * SLACK, 0.0, in_time)
    return {
        "output_tok_per_s_per_gpu": output * per_s,
        "total_tok_per_s_per_gpu": (output + cases.prompts[:, None]) * per_s,
        "goodput_req_per_s_per_gpu": n[:, None] * per_s,
        "tpot_mean_s": tpot + weight[:, None] * (step_s - least[:, None]),
        "ttft_mean_s": cases.ttft_s[:, None],
        "e2e_mean_s": np.maximum(
            loops.before_s[:, None] + (steps / n)[:, None] * step_s,
            (worked.in_flight_s / n)[:, None],
        ),
        "joules_per_output_token": duration_s * cases.idle_watts[:, None] / output,
        "slo_attainment": in_time[:, None],
    }


def _even(cases: Cases, steady: Steady, *, measures_burst: bool) -> dict[str, Array]:
    """The metrics by case of loops that run evenly."""
    duration_s = cases.n / steady.per_s
    if measures_burst:
        duration_s = duration_s + steady.start_s
    per_s = 1.0 / duration_s / cases.n_gpus
    decode_s = steady.step_s * cases.decode_steps
    return {
        "output_tok_per_s_per_gpu": cases.output * per_s,
        "total_tok_per_s_per_gpu": (cases.output + cases.prompts) * per_s,
        "goodput_req_per_s_per_gpu": cases.n * per_s,
        "tpot_mean_s": decode_s / np.maximum(cases.output - cases.n, 1.0),
        "joules_per_output_token": duration_s * cases.idle_watts / cases.output,
        "slo_attainment": cases.in_time if measures_burst else np.ones(len(cases.n)),
    }


def _frame(points: pl.Series, replicate: int, values: Mapping[str, Array]) -> pl.DataFrame:
    columns = [pl.Series(name, each.ravel(), nan_to_null=True) for name, each in values.items()]
    return pl.DataFrame({"point": points}).with_columns(
        pl.lit(replicate, pl.Int32).alias("replicate"), *columns
    )
