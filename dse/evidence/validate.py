"""Predictions against measured rows: by slice the count, MAPE, median, bias and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl

from dse.base.errors import DseError
from dse.evidence.case import METRICS, Case
from dse.run.pool import Pool, in_process
from dse.serving.deployment import Deployment
from dse.serving.deployment import Pool as ServingPool
from dse.sim import simulate

__all__ = ["PREDICTORS", "Prediction", "Slice", "by_simulator", "predictions", "slices", "summary"]

Predict = Callable[..., dict[str, float]]
CHUNK = 24
_LATENCIES: Final = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """How wrong one metric is over the rows of a slice.

    Errors are predicted ÷ measured − 1: `mape` and `median_ape` their mean and median size, `bias`
    their median. `coverage_80` is the share of rows inside the stated 80% interval, where one is.
    """

    slice: str
    metric: str
    n: int
    mape: float
    median_ape: float
    bias: float
    coverage_80: float | None = None


def by_simulator(case: Case, *, tier: str = "auto") -> dict[str, float]:
    """Metrics of a simulation of the case, latencies as the row's statistic, in SI."""
    assert case.deployment is not None
    assert case.workload is not None
    found = simulate(case.deployment, case.workload, 0, tier=tier)
    if case.poll_steps > 1:
        waiting_s = 0.5 * (case.poll_steps - 1) * found.tpot.mean
        found = simulate(_delayed(case.deployment, waiting_s), case.workload, 0, tier=tier)
    spreads = {name: getattr(getattr(found, name), case.statistic) for name in _LATENCIES}
    rates = {"output_tok_per_s": found.output_tok_per_s, "total_tok_per_s": found.total_tok_per_s}
    return {f"{name}_s": seconds for name, seconds in spreads.items()} | rates


def _delayed(deployment: Deployment, seconds: float) -> Deployment:
    """`deployment` whose engines take each request in `seconds` later."""

    def later(pool: ServingPool) -> ServingPool:
        host = replace(pool.engine.host, arrival_s=pool.engine.host.arrival_s + seconds)
        return replace(pool, engine=replace(pool.engine, host=host))

    return replace(deployment, pools=tuple(map(later, deployment.pools)))


def _by_saturation(case: Case, *, tier: str = "auto", fit: Path | None = None) -> dict[str, float]:
    from dse.evidence.predict_saturation import by_saturation
    from dse.saturation.constants import read_fit

    return by_saturation(case, tier=tier, fit=None if fit is None else read_fit(fit))


def _by_floor(case: Case, *, tier: str = "auto") -> dict[str, float]:
    from dse.evidence.floors import by_floor

    return by_floor(case)


PREDICTORS: Final[Mapping[str, Predict]] = {
    "simulator": by_simulator,
    "saturation": _by_saturation,
    "floor": _by_floor,
}


def predictions(
    cases: Sequence[Case],
    *,
    predictor: str = "simulator",
    pool: Pool = in_process,
    tier: str = "auto",
    fit: Path | None = None,
) -> pl.DataFrame:
    """One row a case: `key`, labels, `status`, `reason`, `set_aside`, and for each metric
    `measured_*`, `pred_*` (SI) and `error_*` (predicted ÷ measured − 1).

    `fit` names constants of the saturation model, which then is the predictor.
    """
    asked = [i for i, case in enumerate(cases) if case.deployment is not None]
    predict = partial(PREDICTORS[predictor], tier=tier)
    if fit is not None:
        predict = partial(_by_saturation, tier=tier, fit=fit)
    work = Prediction(cases=tuple(cases), predict=predict)
    order = sorted(asked, key=lambda i: -_work(cases[i]))
    chunks = (pl.DataFrame({"case": order[at : at + CHUNK]}) for at in range(0, len(order), CHUNK))
    found = list(pool(work, chunks))
    types: dict[str, Any] = {"case": pl.Int64, "status": pl.String, "error": pl.String}
    types |= {f"pred_{metric}": pl.Float64 for metric in METRICS}
    predicted = pl.concat([pl.DataFrame(schema=types), *found], how="diagonal_relaxed")
    rows = pl.DataFrame([_row(i, case) for i, case in enumerate(cases)], infer_schema_length=None)
    joined = rows.join(predicted, on="case", how="left", maintain_order="left")
    return _with_errors(joined).drop("case")


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a worker does with a chunk of case numbers."""

    cases: tuple[Case, ...]
    predict: Predict

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """`case`, `status`, `error` and the predicted metrics."""
        return pl.DataFrame(list(self._rows(points["case"].to_list())), infer_schema_length=None)

    def failed(self, points: pl.DataFrame, status: str, error: str) -> pl.DataFrame:
        """Rows that say that cases failed."""
        return points.select("case").with_columns(status=pl.lit(status), error=pl.lit(error))

    def _rows(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            try:
                found = self.predict(self.cases[number])
            except DseError as error:
                yield {"case": number, "status": "infeasible", "error": error.message}
                continue
            metrics = {f"pred_{name}": value for name, value in found.items()}
            yield {"case": number, "status": "ok", "error": None, **metrics}


def slices(
    frame: pl.DataFrame, by: Sequence[str] = (), *, metrics: Sequence[str] = METRICS
) -> list[Slice]:
    """The whole frame as slice `all`, and each value of each label in `by`; rows without an error
    count nowhere.
    """
    found = [_slice("all", metric, frame) for metric in metrics]
    for label in by:
        for value in sorted(frame[label].drop_nulls().unique().to_list()):
            part = frame.filter(pl.col(label) == value)
            found += [_slice(f"{label}={value}", metric, part) for metric in metrics]
    return [each for each in found if each.n]


def summary(frame: pl.DataFrame, by: Sequence[str]) -> dict[str, Any]:
    """The document of `dse validate`: slices of the clean rows and of all, counts and reasons."""
    done = frame.filter(pl.col("status") == "ok")
    clean = done.filter(pl.col("set_aside") == "")
    skipped = Counter(
        row["reason"] or row["error"] or row["status"] or "not asked"
        for row in frame.filter((pl.col("status") != "ok").fill_null(value=True)).iter_rows(
            named=True
        )
    )
    everything = [asdict(each) | {"slice": "all rows"} for each in slices(done)]
    return {
        "slices": [asdict(each) for each in slices(clean, by)] + everything,
        "n_predicted": done.height,
        "n_clean": clean.height,
        "n_skipped": dict(skipped.most_common()),
        "n_set_aside": dict(Counter(done["set_aside"].to_list())),
    }


def _slice(name: str, metric: str, frame: pl.DataFrame) -> Slice:
    errors = frame[f"error_{metric}"].drop_nulls().drop_nans()
    size = errors.abs()
    return Slice(
        slice=name,
        metric=metric,
        n=errors.len(),
        mape=_number(size.mean()),
        median_ape=_number(size.median()),
        bias=_number(errors.median()),
        coverage_80=_coverage(frame, metric),
    )


def _coverage(frame: pl.DataFrame, metric: str) -> float | None:
    low, high, seen = (f"{part}_{metric}" for part in ("lo", "hi", "measured"))
    if low not in frame.columns:
        return None
    inside = frame.select(pl.col(seen).is_between(pl.col(low), pl.col(high)).alias("inside"))
    return _number(inside["inside"].drop_nulls().mean())


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _row(number: int, case: Case) -> dict[str, Any]:
    measured = {f"measured_{name}": case.measured.get(name) for name in METRICS}
    return {
        "case": number,
        "key": case.key,
        **case.labels,
        "statistic": case.statistic,
        "reason": case.reason,
        "set_aside": case.set_aside,
        **measured,
    }


def _with_errors(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        (pl.col(f"pred_{name}") / pl.col(f"measured_{name}") - 1.0).alias(f"error_{name}")
        for name in METRICS
    )


def _work(case: Case) -> float:
    """About how long a case takes to simulate: requests and steps."""
    workload = case.workload
    if workload is None or workload.osl is None:
        return 0.0
    return workload.n_requests * (1.0 + workload.osl.at(0.5) / 100.0)
