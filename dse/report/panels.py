"""One measure against price, load and each bound of the SLO, as rows for small multiples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from dse.report.fleet import gpus_for
from dse.report.load import goodput_by_bound, load_column
from dse.report.procurement import SECONDS_PER_HOUR, goodput_or_output, prices_of
from dse.report.quantities import Quantity, quantity
from dse.report.record import Outcome
from dse.report.section import Rows
from dse.report.subject import Subject

__all__ = ["Compared", "Panel", "compared", "panels"]

MOST_CONTEXTS = 6
N_LOADS = 25
_COST = "usd_per_mtok_output"
_RATE = "output_tok_per_s_per_gpu"
_GOODPUT = "goodput_req_per_s_per_gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What every panel shares: who is compared, in which contexts, and whether by cost."""

    column: str
    keys: tuple[str, ...]
    contexts: tuple[str, ...]
    priced: bool
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One row of small multiples before it is drawn; `rows` have `x`, `y`, `dot` and the keys.

    `bound` is where the study stands on x. Costs against a price are `straight` lines.
    """

    name: str
    title: str
    x_title: str
    y: Quantity
    rows: Rows
    caption: str
    bound: float | None = None
    steps: bool = True
    straight: bool = False


def compared(outcome: Outcome, feasible: pl.DataFrame) -> Compared:
    """Who is compared: GPUs, or what the study compares by; layout families where there is one."""
    named = outcome.study.compare_by or "gpu"
    # Contexts have panels of their own.
    column = named if named in feasible.columns and named != "context" else "gpu"
    if feasible[column].drop_nulls().n_unique() < 2:
        column = "family"
    several = feasible["precision"].drop_nulls().n_unique() > 1
    ordered = feasible.sort("isl_tokens", "osl_tokens")["context"].unique(maintain_order=True)
    return Compared(
        column=column,
        keys=(column, "precision") if several else (column,),
        contexts=tuple(ordered.drop_nulls())[:MOST_CONTEXTS],
        priced=_COST in feasible.columns and feasible[_COST].null_count() == 0,
        tolerance=outcome.study.search.tolerance,
    )


def panels(
    outcome: Outcome, about: Subject, feasible: pl.DataFrame, asked: Compared
) -> Iterator[Panel]:
    """Panels of price, load, TPOT bound and TTFT bound; one of which nothing is known is empty."""
    if asked.priced:
        yield _price(outcome, feasible, asked)
    column = load_column(outcome.results)
    if column is None or outcome.study.is_load_searched:
        yield _fleets(feasible, about, asked)
    else:
        yield _load(feasible, column, asked)
    for metric in ("tpot", "ttft"):
        yield _bound(outcome, about, metric, asked)


def _price(outcome: Outcome, feasible: pl.DataFrame, asked: Compared) -> Panel:
    """Cost is a straight line in the price of a GPU hour; the study's prices are dots on it."""
    best = _best(feasible, goodput_or_output(feasible), asked)
    listed = {name: values for name, values, _ in prices_of(outcome, best)}
    top = 1.25 * max([*best["usd_per_gpu_hour"].drop_nulls(), *sum(listed.values(), ())])
    rows: Rows = []
    for row in best.iter_rows(named=True):
        own = listed.get(row["gpu"], (row["usd_per_gpu_hour"],))
        for price, dot in ((0.0, False), *((each, True) for each in own), (top, False)):
            cost = price * 1e6 / (row[_RATE] * SECONDS_PER_HOUR)
            rows.append(_row(row, asked, price, cost, dot=dot))
    return Panel(
        name="price",
        title="If the price changes",
        steps=False,
        x_title=quantity("usd_per_gpu_hour").label,
        y=quantity(_COST),
        rows=rows,
        straight=True,
        caption="Each at its best under the SLO. Dots are the study's prices, the first of each "
        "decides; two dots at one height break even.",
    )


def _load(feasible: pl.DataFrame, column: str, asked: Compared) -> Panel:
    """The best at no more than each load per GPU."""
    y = quantity(_COST if asked.priced else _RATE)
    words = dict.fromkeys(("point_id", *asked.keys, "precision", "layout", "context", y.column))
    at = feasible.select(*words, _x=pl.col(column) / pl.col("n_gpus"))
    best = at.sort("_x", y.column, descending=[False, y.better == "max"], maintain_order=True)
    sign = 1.0 if y.better == "min" else -1.0
    before = (sign * pl.col(y.column)).shift(1).cum_min().over([*asked.keys, "context"])
    steps = best.filter((sign * pl.col(y.column) < before).fill_null(value=True))
    unit = "requests in flight per GPU" if column == "concurrency" else "req/s per GPU"
    return Panel(
        name="load",
        title="If the load changes",
        x_title=f"load, at most ({unit})",
        y=y,
        rows=[_row(row, asked, row["_x"], row[y.column]) for row in steps.iter_rows(named=True)],
        caption="The best simulated point that has at most so much load per GPU and keeps the SLO. "
        "A line starts at its first such point.",
    )


def _fleets(feasible: pl.DataFrame, about: Subject, asked: Compared) -> Panel:
    """What a load costs on whole replicas, each at the highest rate that keeps the SLO."""
    rows: Rows = []
    if asked.priced and _GOODPUT in feasible.columns:
        best = _best(feasible, _GOODPUT, asked)
        largest = best.select((pl.col(_GOODPUT) * pl.col("n_gpus")).max()).item()
        target = about.target_req_per_s or 8.0 * largest
        for row in best.iter_rows(named=True):
            for load in np.geomspace(target / 64, target * 4, N_LOADS).tolist():
                n_gpus = gpus_for(row, load)
                if n_gpus is not None:
                    busy = load * row["n_gpus"] / row["request_per_s"]
                    rows.append(_row(row, asked, load, row[_COST] * n_gpus / busy))
    return Panel(
        name="load",
        title="If the load changes",
        x_title="load (req/s)",
        y=quantity(_COST),
        rows=rows,
        bound=about.target_req_per_s,
        steps=False,
        caption="Whole replicas, each at the highest rate that keeps the SLO: at little load the "
        "last one idles. Dashed: the target of the study, where it has one.",
    )


def _bound(outcome: Outcome, about: Subject, metric: str, asked: Compared) -> Panel:
    """The best under each bound on one latency, the SLO's other bounds kept."""
    title = quantity(f"{metric}_mean_s")
    best = goodput_by_bound(outcome, about, metric, (*asked.keys, "context"))
    # Of a million results a few hundred are shown: only theirs become Python rows.
    shown = outcome.results.filter(pl.col("point_id").is_in({each["point_id"] for each in best}))
    facts = {row["point_id"]: row for row in shown.iter_rows(named=True)}
    rows: Rows = []
    last: dict[tuple[Any, ...], float] = {}
    for each in best:
        point, y = facts[each["point_id"]], each[_GOODPUT]
        if asked.priced:
            y = point[_COST] * point["request_per_s"] / point["n_gpus"] / y
        who = tuple(each[name] for name in (*asked.keys, "context"))
        x = each[f"{metric}_bound_s"] * title.scale
        rows.append(_row(point, asked, x, y, dot=last.get(who) != y))
        last[who] = y
    slo = getattr(about.slo, f"{metric}_s")
    return Panel(
        name=metric,
        title=f"If the {metric.upper()} bound changes",
        x_title=f"{metric.upper()} bound ({title.unit})",
        y=quantity(_COST if asked.priced else _GOODPUT),
        rows=rows,
        bound=None if slo is None else slo * title.scale,
        caption=f"The best simulated point of which {100 * about.slo.attainment:g}% of requests "
        "keep this bound and the other bounds of the SLO; only those requests count. Dashed: the "
        "bound that the study asks for.",
    )


def _best(feasible: pl.DataFrame, by: str, asked: Compared) -> pl.DataFrame:
    keys = [*asked.keys, "context"]
    named = feasible.select(*{by, *keys}).with_row_index("_row")
    ordered = named.filter(pl.col(by).is_finite()).sort(by, descending=True, maintain_order=True)
    return feasible[ordered.unique(keys, keep="first", maintain_order=True)["_row"]]


def _row(
    row: Mapping[str, Any], asked: Compared, x: float, y: float, *, dot: bool = True
) -> dict[str, Any]:
    words = ("point_id", asked.column, "precision", "layout", "context")
    return {**{name: row[name] for name in words}, "x": x, "y": y, "dot": dot}
