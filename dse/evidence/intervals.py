"""Stated 80% intervals of simulated metrics, from the residuals of validation.

A residual is measured ÷ predicted. Two of its quantiles over the rows of an engine and a model
class (dense, or experts) are factors on any prediction of that kind; an engine or class without
enough rows takes the quantiles of all. Rows of one GPU and model err together, so quantiles that
hold 80% of the rows that they come from hold fewer of a pair that was not among them: of the two
shares the one that is further from 80% decides. Where a kind of rows is biased as a whole, the
factors are widened to hold 1: the bias of the rows at hand need not be that of a deployment. The
file says how many rows each pair of factors saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

import dse.catalog
from dse.base.source import read
from dse.evidence.case import METRICS, Case
from dse.serving.deployment import Deployment

__all__ = [
    "ANY",
    "Factors",
    "Intervals",
    "banded",
    "bounds",
    "fitted",
    "intervals",
    "limits",
    "ratios",
    "to_yaml",
    "wider",
    "with_bounds",
]

ANY: Final = "any"
FEWEST: Final = 30
SHARE: Final = 0.8
_TAILS: Final = tuple(0.005 * i for i in range(28, 5, -1))
_FEWEST_GROUPS: Final = 3
_FILE: Final = "intervals.yaml"

Ratios = NDArray[np.float64]
Groups = NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """Factors on a predicted `metric`, from `n` measured rows."""

    engine: str
    model_class: str
    metric: str
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """All factors, with the rows that they were made from."""

    source: str
    factors: tuple[Factors, ...]

    def of(self, engine: str, model_class: str, metric: str) -> Factors | None:
        """The factors of the narrowest kind that has them."""
        known = {(each.engine, each.model_class, each.metric): each for each in self.factors}
        found = (known.get((*pair, metric)) for pair in wider(engine, model_class))
        return next((each for each in found if each is not None), None)


def wider(engine: str, model_class: str) -> tuple[tuple[str, str], ...]:
    """The kinds whose factors serve an engine and a model class, the narrowest first."""
    return (engine, model_class), (engine, ANY), (ANY, model_class), (ANY, ANY)


@lru_cache(maxsize=1)
def intervals() -> Intervals:
    """The factors that ship."""
    return read(Path(dse.catalog.__file__).parent / "coefficients" / _FILE, Intervals)


def bounds(deployment: Deployment, metric: str, value: float) -> tuple[float, float]:
    """The stated 80% interval (low, high) around a simulated `metric` of `deployment`, in its unit.

    `metric` is one of `METRICS`, or a percentile of one (`ttft_p99_s`) or a rate per GPU, which
    take the factors of the metric that they are of. Without factors the interval is (0, infinity).
    """
    found = intervals().of(deployment.pool("decode").engine.name, _class(deployment), _base(metric))
    if found is None:
        return 0.0, float("inf")
    return value * found.low, value * found.high


def with_bounds(
    frame: pl.DataFrame, cases: Sequence[Case], stated: Intervals | None = None
) -> pl.DataFrame:
    """`frame` of predictions, in the order of `cases`, with `lo_*` and `hi_*` of each metric."""
    known = stated or intervals()
    columns: dict[str, list[float | None]] = {}
    for metric in METRICS:
        low, high = (
            columns.setdefault(f"low_{metric}", []),
            columns.setdefault(f"high_{metric}", []),
        )
        for case in cases:
            found = None
            if case.deployment is not None:
                engine = case.deployment.pool("decode").engine.name
                found = known.of(engine, _class(case.deployment), metric)
            low.append(found.low if found else None)
            high.append(found.high if found else None)
    factors = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))
    bounded = pl.concat([frame, factors], how="horizontal").with_columns(
        (pl.col(f"pred_{metric}") * pl.col(f"{old}_{metric}")).alias(f"{new}_{metric}")
        for metric in METRICS
        for old, new in (("low", "lo"), ("high", "hi"))
    )
    return bounded.drop(list(columns))


def fitted(rows: pl.DataFrame, source: str) -> Intervals:
    """The factors of predicted rows: columns `engine`, `class`, `gpu`, `model`, `measured_*` and
    `pred_*`.
    """
    found = [
        each
        for metric in METRICS
        for engine, model_class, part in _kinds(ratios(rows, metric))
        for each in _factors(engine, model_class, metric, part)
    ]
    return Intervals(source=source, factors=tuple(found))


def ratios(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """`engine`, `class`, `source` (where there is one), `group` (GPU and model) and `ratio`
    (measured ÷ predicted) of the rows that have both.
    """
    ratio = pl.col(f"measured_{metric}") / pl.col(f"pred_{metric}")
    # Two sources write h100_sxm and H100-SXM.
    gpu = pl.col("gpu").str.to_lowercase().str.replace_all("_", "-")
    group = pl.concat_str(gpu, "model", separator="|").alias("group")
    labels = ["engine", "class", *({"source"} & set(rows.columns))]
    asked = rows.select(*labels, group, ratio.alias("ratio")).drop_nulls()
    return asked.filter(pl.col("ratio").is_finite())


def limits(ratio: Ratios, group: Groups) -> tuple[float, float]:
    """Quantiles of `ratio`, widened to hold 1, with about 80% inside: of the rows that they come
    from, and of each group by those of the others, whichever share is further away.
    """
    names = np.unique(group)
    chosen = (1.0 - SHARE) / 2.0
    if len(names) >= _FEWEST_GROUPS:
        parts = [(ratio[group == name], ratio[group != name]) for name in names]
        everything = [(ratio, ratio)]

        def off(tail: float) -> float:
            return max(abs(_held(each, tail) - SHARE) for each in (parts, everything))

        chosen = min(_TAILS, key=off)
    return _widened(ratio, chosen)


def _widened(ratio: Ratios, tail: float) -> tuple[float, float]:
    low, high = np.quantile(ratio, (tail, 1.0 - tail))
    return min(float(low), 1.0), max(float(high), 1.0)


def _held(parts: Iterable[tuple[Ratios, Ratios]], tail: float) -> float:
    """Share of rows inside the quantiles of the rows of the other groups."""
    inside = n = 0
    for own, others in parts:
        low, high = _widened(others, tail)
        inside += int(np.count_nonzero((own >= low) & (own <= high)))
        n += len(own)
    return inside / n


def _kinds(rows: pl.DataFrame) -> Iterable[tuple[str, str, pl.DataFrame]]:
    for (engine, model_class), part in rows.group_by("engine", "class", maintain_order=True):
        yield str(engine), str(model_class), part
    for (engine,), part in rows.group_by("engine", maintain_order=True):
        yield str(engine), ANY, part
    for (model_class,), part in rows.group_by("class", maintain_order=True):
        yield ANY, str(model_class), part
    yield ANY, ANY, rows


def _factors(engine: str, model_class: str, metric: str, part: pl.DataFrame) -> Iterable[Factors]:
    if part.height >= FEWEST:
        low, high = limits(part["ratio"].to_numpy(), part["group"].to_numpy())
        yield Factors(
            engine=engine, model_class=model_class, metric=metric,
            low=round(low, 4), high=round(high, 4), n=part.height,
        )  # fmt: skip


def _class(deployment: Deployment) -> str:
    return "MoE" if deployment.model.is_moe else "dense"


_RATES: Final[Mapping[str, str]] = {"output": "output_tok_per_s", "total": "total_tok_per_s"}


def _base(metric: str) -> str:
    """`tpot_p99_s` → `tpot_s`, `output_tok_per_s_per_gpu` and goodput → `output_tok_per_s`."""
    start = metric.split("_", maxsplit=1)[0]
    if start in ("ttft", "tpot", "e2e"):
        return f"{start}_s"
    return _RATES.get(start, "output_tok_per_s")


def to_yaml(found: Intervals) -> str:
    """The file that `intervals` reads."""
    lines = (
        f"  - {{engine: {each.engine}, model_class: {each.model_class}, "
        f"metric: {each.metric}, low: {each.low}, high: {each.high}, n: {each.n}}}"
        for each in found.factors
    )
    return "\n".join([f'source: "{found.source}"', "factors:", *lines]) + "\n"


def banded(
    front: pl.DataFrame,
    deployments: Mapping[int, Deployment],
    columns: Iterable[str] = (),
    by: str = "structure",
) -> pl.DataFrame:
    """`front` with `lo_` and `hi_` of p99 latencies and of those of `columns` that are latencies or
    token rates; the column `by` says which of `deployments` a row is.
    """
    wanted = [name for name in dict.fromkeys((*columns, *_ALWAYS)) if name.startswith(_BANDED)]
    wanted = [name for name in wanted if name in front.columns and by in front.columns]
    found: dict[str, list[float | None]] = {}
    for name in wanted:
        low, high = found.setdefault(f"lo_{name}", []), found.setdefault(f"hi_{name}", [])
        for number, value in front.select(by, name).iter_rows():
            known = deployments.get(number) if value is not None else None
            pair = (None, None) if known is None else bounds(known, name, value)
            low.append(pair[0])
            high.append(pair[1])
    bands = pl.DataFrame(found, schema=dict.fromkeys(found, pl.Float64))
    return pl.concat([front, bands], how="horizontal") if found else front


_ALWAYS: Final = ("ttft_p99_s", "tpot_p99_s")
_BANDED: Final = ("ttft_", "tpot_", "e2e_", "output_tok_per_s", "total_tok_per_s")
