"""Points whose load is searched: each is probed at rates of a fixed grid until its best is known.

Every probe is an ordinary result at its rate, reused by any study. The points of a call are probed
side by side, one rate each at a time, so that a pool has as much to do as there are points.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dse.run.evaluate import Evaluator
from dse.run.operating_point import LOWEST_STEP, OperatingPoint, grid_rate, max_goodput
from dse.saturation.constants import shipped_fit
from dse.saturation.curve import curve_of, stack
from dse.saturation.demand import load_of
from dse.saturation.operating import bracket
from dse.serving.deployment import Deployment
from dse.serving.workload import Workload
from dse.study import Load, Study

__all__ = ["RATE", "Offered", "Probing", "likely_rates"]

RATE = "req_per_s"


@dataclass(frozen=True, slots=True)
class Offered:
    """What a row asks at the rate that it carries; sent to workers in place of the study's own."""

    study: Study

    def __call__(self, row: Mapping[str, Any]) -> Workload:
        """The workload of a row with `req_per_s`."""
        return self.study.workload_of(row, Load(req_per_s=float(row[RATE])))


def likely_rates(
    study: Study, deployments: Mapping[int, Deployment], points: pl.DataFrame
) -> dict[int, float]:
    """Req/s of each point at which the saturation model expects the SLO to break; disaggregated
    points have no guess.
    """
    found: dict[int, float] = {}
    for row in points.iter_rows(named=True):
        deployment = deployments[row["structure"]]
        if deployment.is_disaggregated or study.slo is None:
            continue
        pool = deployment.pools[0]
        workload = study.workload_of(row, Load(req_per_s=1.0))
        load = load_of(workload, 1.0, prefix_caching=pool.engine.prefix_caching)
        fit = shipped_fit(pool.gpu.name, pool.engine.label)
        likely = bracket(stack([curve_of(deployment, fit)]), 0, load, study.slo).likely
        found[row["point"]] = float(likely)
    return found


@dataclass(kw_only=True)
class Probing:
    """Evaluates points at the highest rate that keeps the SLO.

    `ceiling` and `guess` give req/s of a point: what no schedule can exceed, and where to probe
    first. Rows are those of the best rate (of the lowest of the grid where none passes), with
    `req_per_s`, `n_probes` and `rate_step_fraction`. A run ends with its last requests, whose
    drain is no part of the service: throughput is that of the rate, at which arrivals and
    completions balance (`mean_share` × OSL tokens each), goodput the share of it that is good.
    """

    evaluator: Evaluator
    attainment: float
    ceiling: Callable[[pl.DataFrame], Mapping[int, float]]
    guess: Callable[[pl.DataFrame], Mapping[int, float]]
    mean_share: float = 1.0

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """Results of `points`, replicate by replicate, each at its own best rate."""
        found = _side_by_side(self._ask(points), self._jobs(points))
        best = {point: each.req_per_s or grid_rate(LOWEST_STEP) for point, each in found.items()}
        rows = self.evaluator(_at(points, best))
        told = pl.DataFrame(
            {
                "point": list(found),
                RATE: [best[point] for point in found],
                "n_probes": [each.n_runs for each in found.values()],
                "rate_step_fraction": [each.step_fraction for each in found.values()],
            },
            schema_overrides={"point": pl.UInt64},
        )
        joined = rows.join(told, on="point", how="left", maintain_order="left")
        asked = points.select("point", "osl_tokens")
        return self._at_rate(joined.join(asked, on="point", how="left", maintain_order="left"))

    def _at_rate(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Throughput and goodput of a service that goes on at `req_per_s`."""
        rate, gpus = pl.col(RATE), pl.col("n_gpus")
        tokens = rate * pl.col("osl_tokens") * self.mean_share
        total = tokens * pl.col("total_tok_per_s") / pl.col("output_tok_per_s")
        good = rate * pl.col("slo_attainment")
        named = {
            "request_per_s": rate,
            "output_tok_per_s": tokens,
            "output_tok_per_s_per_gpu": tokens / gpus,
            "total_tok_per_s": total,
            "total_tok_per_s_per_gpu": total / gpus,
            "goodput_req_per_s": good,
            "goodput_req_per_s_per_gpu": good / gpus,
        }
        is_ok = pl.col("status") == "ok"
        return rows.with_columns(
            pl.when(is_ok).then(value).alias(name) for name, value in named.items()
        ).drop("osl_tokens")

    def _jobs(self, points: pl.DataFrame) -> dict[int, Callable[[Probe], OperatingPoint]]:
        ceilings, guesses = self.ceiling(points), self.guess(points)

        def job(point: int) -> Callable[[Probe], OperatingPoint]:
            top, likely = ceilings[point], guesses.get(point, 0.0)
            return lambda passes: max_goodput(passes, ceiling_req_per_s=top, guess_req_per_s=likely)

        return {point: job(point) for point in points["point"].to_list()}

    def _ask(self, points: pl.DataFrame) -> Callable[[Mapping[int, float]], dict[int, bool]]:
        def ask(rates: Mapping[int, float]) -> dict[int, bool]:
            rows = self.evaluator(_at(points, rates))
            means = rows.group_by("point").agg(
                ok=(pl.col("status") == "ok").all(), share=pl.col("slo_attainment").mean()
            )
            keeps = pl.col("ok") & (pl.col("share") >= self.attainment).fill_null(value=False)
            return dict(means.select("point", keeps.alias("keeps")).iter_rows())

        return ask


Probe = Callable[[float], bool]


def _at(points: pl.DataFrame, rates: Mapping[int, float]) -> pl.DataFrame:
    """The rows of these points, each with its rate."""
    asked = pl.DataFrame(
        {"point": list(rates), RATE: list(rates.values())},
        schema={"point": pl.UInt64, RATE: pl.Float64},
    )
    return points.join(asked, on="point", how="inner", maintain_order="left")


def _side_by_side(
    ask: Callable[[Mapping[int, float]], dict[int, bool]],
    jobs: Mapping[int, Callable[[Probe], OperatingPoint]],
) -> dict[int, OperatingPoint]:
    """Run every job in a thread of its own; each waits for its probe, and all that wait are asked
    at once. The order of answers depends on the jobs alone.
    """
    table = _Table(waiting=dict.fromkeys(jobs))
    threads = [
        threading.Thread(target=table.run, args=(name, job), daemon=True)
        for name, job in jobs.items()
    ]
    for thread in threads:
        thread.start()
    while rates := table.next_questions():
        try:
            table.answer(ask(rates))
        except BaseException as error:
            table.give_up(error)
            raise
    for thread in threads:
        thread.join()
    if table.error is not None:
        raise table.error
    return {name: table.results[name] for name in jobs}


class _Stopped(Exception):
    """Ends a job's thread after another one failed."""


@dataclass(kw_only=True)
class _Table:
    """Where jobs put their questions and find answers; a job in `waiting` is not done yet."""

    waiting: dict[int, float | None]
    answers: dict[int, bool] = field(default_factory=dict)
    results: dict[int, OperatingPoint] = field(default_factory=dict)
    error: BaseException | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self, name: int, job: Callable[[Probe], OperatingPoint]) -> None:
        try:
            found = job(lambda rate: self._ask(name, rate))
        except _Stopped:
            return
        except Exception as error:
            with self.changed:
                self.error = self.error or error
                del self.waiting[name]
                self.changed.notify_all()
            return
        with self.changed:
            self.results[name] = found
            del self.waiting[name]
            self.changed.notify_all()

    def _ask(self, name: int, rate: float) -> bool:
        with self.changed:
            self.waiting[name] = rate
            self.changed.notify_all()
            while name not in self.answers:
                if self.error is not None:
                    raise _Stopped
                self.changed.wait()
            return self.answers.pop(name)

    def next_questions(self) -> dict[int, float]:
        """The rates that jobs wait for, once all of them do; empty when all are done."""
        with self.changed:
            while any(rate is None for rate in self.waiting.values()):
                self.changed.wait()
            return {name: rate for name, rate in self.waiting.items() if rate is not None}

    def answer(self, answers: Mapping[int, bool]) -> None:
        with self.changed:
            for name, answer in answers.items():
                self.waiting[name] = None
                self.answers[name] = answer
            self.changed.notify_all()

    def give_up(self, error: BaseException) -> None:
        with self.changed:
            self.error = error
            self.changed.notify_all()
