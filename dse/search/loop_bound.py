"""The first rung by the simulator's own times: closed loops of many points at once (see `trade`).

It knows what a run asks in sums alone, so that a pool and a load are worked out once, whatever the
number of points that share them. Loads that are no plain closed loop are left open.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np
import polars as pl

from dse.cost.memo import Memo
from dse.search.envelope import Array
from dse.search.offered import Offered, attainment_at_most, may_be_late
from dse.search.trade import CORNERS, Asked, Loops, Rates, coarse
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import RunSpec
from dse.sim.spec import PoolSpec

Row = Mapping[str, Any]
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
# What tells loads apart among the columns of a point.
_LOAD = ("isl_tokens", "osl_tokens", "concurrency", "req_per_s")
# Bounds are compared with numbers whose codes are rounded (see `engine_bound`).
_SLACK = 1.0002
_KEPT_RATES = 4096
# Likely means that keep an SLO, as multiples of it: some first tokens of the loop's start are late
# anyway, and the guess is 9-18% low for TPOT.
_MEAN_TTFT, _MEAN_TPOT = 1.75, 0.92
_Sums = tuple[Asked, tuple[float, float], int]


@dataclass(frozen=True, slots=True)
class _Case:
    """One point: its pools, what its part is asked, and how it is put together."""

    decode: Rates
    asked: Asked
    prompts: "_Prompts"
    n_decode: int
    is_shared: bool
    n_gpus: int
    transfer_s: float
    idle_watts: float


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Prompts of a load on a pool, at least: seconds for each token of all, of the mean prompt
    alone, to the mean first token, and the share of requests whose first token may be in time.
    """

    token_s: float
    alone_s: float
    ttft_s: float
    in_time: float

    @classmethod
    def of(cls, rates: Rates, asked: Asked, n_replicas: int, slo: SLO | None) -> "_Prompts":
        """What `n_replicas` of a pool make of the prompts that are asked."""
        token_s, arrival_s = rates.prompt_token_s / n_replicas, rates.pool.arrival_s
        # Jensen: the hull is convex.
        lengths = np.array([asked.new / asked.n, asked.shortest])
        mean_s, shortest_s = (arrival_s + rates.alone_s.at(lengths)).tolist()
        burst = len(asked.first_burst) / asked.n
        queued_s = arrival_s + float(asked.first_burst.mean()) * token_s
        in_time = 1.0
        if slo is not None and slo.ttft_s is not None:
            # See `dse.search.work.served_in_time`.
            most = (slo.ttft_s * _SLACK - arrival_s) / token_s
            served = int(np.searchsorted(asked.first_burst, most, side="right"))
            late = len(asked.first_burst) - served
            in_time = attainment_at_most(asked.n - late, asked.n)
        return cls(
            token_s=token_s,
            alone_s=mean_s,
            ttft_s=max(mean_s, burst * queued_s + (1.0 - burst) * shortest_s),
            in_time=in_time,
        )


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
    _rates: Memo[Rates] = field(default_factory=lambda: Memo(_KEPT_RATES), init=False)
    _last: tuple[Any, list[_Case | None]] | None = field(default=None, init=False)

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """`point`, `replicate` and `METRICS`: the box around each curve; null where it is open."""
        frames = []
        for replicate in range(self.replicates):
            values = self._values(points, replicate)
            # The fastest run there may be, and the least of everything else.
            box = {name: _best(name, each) for name, each in values.items()}
            frames.append(_frame(points["point"], replicate, box))
        return pl.concat(frames)

    def curve(self, points: pl.DataFrame) -> pl.DataFrame:
        """`point` and `METRICS`, a row a corner: each run is no better than one of its point's
        corners, if it keeps the SLO. Means over several replicates lie on no curve, so there must
        be one.
        """
        values = self._values(points, 0, keeps=True)
        repeated = points["point"].gather(np.repeat(np.arange(points.height), CORNERS))
        return _frame(repeated, 0, {name: each.ravel() for name, each in values.items()})

    def guess(self, points: pl.DataFrame) -> pl.DataFrame:
        """`point` and `METRICS` as they are likely to be: the corner of most requests in flight.
        `slo_attainment` is 1 or 0, as means that Little's law gives keep the SLO or do not.
        """
        found = {name: each[:, 0] for name, each in self._values(points, 0).items()}
        per_s = found["goodput_req_per_s_per_gpu"] * points["n_gpus"].to_numpy()
        answer = found["output_tok_per_s_per_gpu"] / found["goodput_req_per_s_per_gpu"]
        in_flight = points["concurrency"].to_numpy() if "concurrency" in points.columns else np.nan
        found["e2e_mean_s"] = in_flight / per_s
        found["ttft_mean_s"] = found["e2e_mean_s"] - found["tpot_mean_s"] * (answer - 1.0)
        found["slo_attainment"] = _likely_kept(found, self.slo)
        return _frame(points["point"], 0, found)

    def _values(
        self, points: pl.DataFrame, replicate: int, *, keeps: bool = False
    ) -> dict[str, Array]:
        """The metrics by point and corner; `keeps`: of runs that keep the SLO."""
        key = (replicate, points["point"].to_numpy().tobytes())
        if self._last is None or self._last[0] != key:
            # A box and its curve ask for the same.
            self._last = key, list(self._cases(points, replicate))
        found = {name: np.full((points.height, CORNERS), np.nan) for name in METRICS}
        groups: dict[int, list[tuple[int, _Case]]] = {}
        for place, case in enumerate(self._last[1]):
            if case is not None:
                groups.setdefault(id(case.decode), []).append((place, case))
        for group in groups.values():
            places = np.array([place for place, _ in group])
            worked = _metrics([case for _, case in group], self.slo, keeps=keeps)
            for name, each in worked.items():
                found[name][places] = each
        return found

    def _cases(self, points: pl.DataFrame, replicate: int) -> Iterator["_Case | None"]:
        names = [name for name in _LOAD if name in points.columns]
        loads: dict[tuple[Any, ...], Workload] = {}
        sums: dict[tuple[Any, ...], _Sums | None] = {}
        prompts: dict[Any, tuple[Rates, _Prompts]] = {}
        columns = [points[name].to_list() for name in ("structure", *names)]
        for place, (structure, *load) in enumerate(zip(*columns, strict=True)):
            spec = self.spec_of(structure) if "concurrency" in names else None
            if spec is None:
                yield None
                continue
            whole = tuple(load)
            if whole not in loads:
                loads[whole] = self.workload_of(points.row(place, named=True))
            copies, q_tokens = _copies(spec), spec.pools[-1].limits.q_tokens
            key = (*whole, copies, q_tokens)
            if key not in sums:
                asked = self.offered((loads[whole], replicate))
                sums[key] = _summed(asked, copies, q_tokens)
            yield self._case(spec, sums[key], prompts)

    def _case(
        self, spec: RunSpec, summed: "_Sums | None", prompts: dict[Any, tuple[Rates, _Prompts]]
    ) -> "_Case | None":
        if summed is None or not spec.admits(*summed[0].longest):
            return None
        asked, contexts, copies = summed
        first, last = spec.pools[0], spec.pools[-1]
        rates, n_replicas = self._rate(first, contexts), first.n_replicas // copies
        key = (id(rates), id(asked), n_replicas)
        if key not in prompts:
            prompts[key] = rates, _Prompts.of(rates, asked, n_replicas, self.slo)
        return _Case(
            decode=self._rate(last, contexts),
            asked=asked,
            prompts=prompts[key][1],
            n_decode=last.n_replicas // copies,
            is_shared=len(spec.pools) == 1,
            n_gpus=spec.n_gpus // copies,
            transfer_s=spec.transfer_s(int(asked.shortest)),
            idle_watts=sum(pool.watts[0] * pool.n_gpus for pool in spec.pools) / copies,
        )

    def _rate(self, pool: PoolSpec, contexts: tuple[float, float]) -> Rates:
        key = (contexts, pool.role == "both")
        return self._rates.of((pool.cost, pool.kv), key, lambda: Rates.of(pool, contexts))


def _copies(spec: RunSpec) -> int:
    """How many equal parts a deployment has, of which one is simulated."""
    return gcd(*(pool.n_replicas for pool in spec.pools)) if spec.router.is_stateless else 1


def _summed(offered: Offered | None, copies: int, q_tokens: int) -> _Sums | None:
    """The sums of the part that is simulated, its contexts, and how many parts there are."""
    is_loop = offered is not None and offered.concurrency > 0 and offered.is_plain
    if offered is None or not is_loop or not offered.means_cover_all:
        return None
    if bool((offered.new < offered.isl).any()) or not bool((offered.osl > 1.0).all()):
        return None
    if offered.concurrency % copies or offered.roots.max() + 1 < copies:
        copies = 1
    part = offered.part(copies)
    # Engines refuse of the whole load, before it is parted: others would then be in this part.
    longest = (int(offered.isl.max()), int(offered.osl.max()))
    return Asked.of(part, q_tokens, longest), coarse(part, q_tokens), copies


def _metrics(cases: list[_Case], slo: SLO | None, *, keeps: bool) -> dict[str, Array]:
    """The metrics of points that decode on one kind of pool, by point and corner."""

    def column(of: Callable[[_Case], float]) -> Array:
        return np.array([of(case) for case in cases], dtype=float)

    decode = cases[0].decode
    n, steps = column(lambda c: c.asked.n), column(lambda c: c.asked.decode_steps)
    transfer_s = column(lambda c: c.transfer_s)
    before_s = column(lambda c: c.prompts.alone_s) + transfer_s
    concurrency, replicas = column(lambda c: c.asked.concurrency), column(lambda c: c.n_decode)
    new, q = column(lambda c: c.asked.new), decode.pool.limits.q_tokens
    busy_s, extra_s = new * column(lambda c: c.prompts.token_s), np.zeros(len(cases))
    is_shared = column(lambda c: c.is_shared)
    for each in decode.shared:
        added_s = each.added_s(n, new, q * steps) * is_shared
        if decode.pool.pp == 1:
            extra_s = added_s
        stage_s = (steps / each.per_s.at(concurrency / replicas) + added_s) / replicas
        busy_s = np.maximum(busy_s, stage_s)
    loops = Loops(
        rates=decode,
        n=n,
        steps=steps,
        beyond=column(lambda c: c.asked.context_sum) - decode.contexts[0] * steps,
        concurrency=concurrency,
        replicas=replicas,
        before_s=before_s,
        busy_s=busy_s,
        extra_s=extra_s,
    )
    longest = column(lambda c: c.asked.longest_decode)
    if keeps and slo is not None and slo.tpot_s is not None and q == 1:
        # The requests that may be late are, at worst, the longest ones.
        attainment = slo.attainment
        late = column(lambda c: may_be_late(c.asked.n, attainment))
        loops = loops.within(slo.tpot_s * _SLACK, late * longest / steps)
    duration_s, step_s = loops.corners()
    least = decode.least_s
    weight = steps / n / longest
    tpot = (least / q + transfer_s / longest)[:, None] + weight[:, None] * (step_s - least)
    per_s = 1.0 / duration_s / column(lambda c: c.n_gpus)[:, None]
    output = column(lambda c: c.asked.output)[:, None]
    same = np.ones_like(duration_s)
    is_slow = slo is not None and slo.tpot_s is not None and least / q > slo.tpot_s * _SLACK
    in_pace = 0.0 if is_slow else 1.0
    return {
        "output_tok_per_s_per_gpu": output * per_s,
        "total_tok_per_s_per_gpu": (output + column(lambda c: c.asked.prompts)[:, None]) * per_s,
        "goodput_req_per_s_per_gpu": n[:, None] * per_s,
        "tpot_mean_s": tpot,
        "ttft_mean_s": column(lambda c: c.prompts.ttft_s)[:, None] * same,
        "e2e_mean_s": np.maximum(
            before_s[:, None] + (steps / n)[:, None] * step_s,
            (_in_flight_s(cases) / n)[:, None],
        ),
        "joules_per_output_token": duration_s * column(lambda c: c.idle_watts)[:, None] / output,
        "slo_attainment": column(lambda c: c.prompts.in_time)[:, None] * same * in_pace,
    }


def _likely_kept(found: Mapping[str, Array], slo: SLO | None) -> Array:
    """1 where likely means keep `slo`, 0 where they do not, NaN where nothing is known."""
    asked = slo or SLO(attainment=0.0)
    kept = np.ones_like(found["tpot_mean_s"])
    for name, bound, room in (
        ("ttft_mean_s", asked.ttft_s, _MEAN_TTFT),
        ("tpot_mean_s", asked.tpot_s, _MEAN_TPOT),
        ("e2e_mean_s", asked.e2e_s, _MEAN_TPOT),
    ):
        if bound is not None:
            kept *= found[name] <= bound * room
    return np.where(np.isnan(found["tpot_mean_s"]), np.nan, kept)


def _in_flight_s(cases: list[_Case]) -> Array:
    """Seconds of all requests in flight, at least: until the last one is asked the loop is full,
    and by then all but those in flight are done.
    """

    def column(of: Callable[[_Case], float]) -> Array:
        return np.array([of(case) for case in cases], dtype=float)

    decode, replicas = cases[0].decode, column(lambda c: c.n_decode)
    settled: Array = np.array([case.asked.settled for case in cases])
    n, new, steps = settled.T
    concurrency = column(lambda c: min(c.asked.concurrency, c.asked.n))
    least_s: Array = new * column(lambda c: c.prompts.token_s)
    least_s = np.maximum(least_s, steps / decode.steps_per_s(concurrency / replicas) / replicas)
    is_shared = column(lambda c: c.is_shared)
    for each in decode.shared:
        added_s = each.added_s(n, new, decode.pool.limits.q_tokens * steps) * is_shared
        stage_s = (steps / each.per_s.at(concurrency / replicas) + added_s) / replicas
        least_s = np.maximum(least_s, stage_s)
    found: Array = concurrency * least_s
    return found


def _best(name: str, values: Array) -> Array:
    is_rate = name.endswith("_per_gpu") or name == "slo_attainment"
    found: Array = values.max(axis=1) if is_rate else values.min(axis=1)
    return found


def _frame(points: pl.Series, replicate: int, values: Mapping[str, Array]) -> pl.DataFrame:
    columns = [pl.Series(name, each, nan_to_null=True) for name, each in values.items()]
    return pl.DataFrame({"point": points}).with_columns(
        pl.lit(replicate, pl.Int32).alias("replicate"), *columns
    )
