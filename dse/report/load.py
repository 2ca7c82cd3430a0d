"""Latency against load, the batch cap, and what another TPOT bound would give."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dse.report.quantities import quantity
from dse.report.record import Outcome
from dse.report.section import Figure, Part, Rows, Section
from dse.report.subject import Subject
from dse.report.tables import Table, distinct, table
from dse.sim import LatencySketch

__all__ = ["goodput_by_bound", "latency", "load_column", "tightened"]

MOST = 6
MOST_LOADS = 60
N_BOUNDS = 40
# Columns that say what is deployed and asked, but for how much of it is asked at once.
_WHO = ("model", "gpu", "n_gpus", "engine", "weights", "kv", "layout", "isl_tokens", "osl_tokens")
_LOADS = ("batch", "concurrency", "req_per_s", "request_per_s", "point", "point_id")
_MEDIAN = "p50"
_EACH = ("gpu", "precision")
_METRICS = ("ttft", "tpot", "e2e")  # as a sketch has them


def latency(outcome: Outcome, about: Subject) -> Part | None:
    """TTFT and TPOT of the front's deployments against the load that they were simulated at."""
    from dse.report.charts import load as charts
    from dse.report.charts.theme import spec_of

    column = load_column(outcome.results)
    upper = _percentile(outcome, about)
    curves = list(_curves(outcome, column, upper)) if column else []
    advice = _advice(outcome)
    figures: list[Figure] = []
    datasets: dict[str, Rows] = {}
    if column and curves:
        names = list(dict.fromkeys(each["who"] for each in curves))
        for metric in ("ttft", "tpot"):
            bound = getattr(about.slo, f"{metric}_s")
            figures.append(
                Figure(
                    name=f"load-{metric}",
                    title=f"{metric.upper()} against load",
                    spec=spec_of(charts.latency, metric, column, names, upper, bound_s=bound),
                    alt=f"{metric.upper()} median and {upper} against offered load for "
                    + ", ".join(names),
                    caption=_caption(upper, about, has_bound=bound is not None),
                )
            )
        datasets["load"] = curves
    if not figures and not advice.rows:
        return None
    section = Section(
        name="load",
        title="Latency against load",
        charts=tuple(figures),
        tables=(advice,) if advice.rows else (),
        lines=_advice_lines(advice),
    )
    return Part(section=section, datasets=datasets)


def _percentile(outcome: Outcome, about: Subject) -> str:
    """The percentile that the SLO's bounds are for, where results hold it; else the 99th."""
    asked = f"p{round(100 * about.slo.attainment, 6):g}"
    has = {f"ttft_{asked}_s", f"tpot_{asked}_s"} <= set(outcome.results.columns)
    return asked if has and asked != _MEDIAN else "p99"


def _caption(upper: str, about: Subject, *, has_bound: bool) -> str:
    text = f"Solid: {upper}, dashed: median."
    if has_bound:
        share = f"{100 * about.slo.attainment:g}"
        text += f" The dashed bound of the SLO is for {share}% of requests"
        text += ", as the solid lines." if upper == f"p{share}" else "."
    return (
        f"{text} Diamonds mark the knee: the simulated load with the most output per second of E2E "
        "latency."
    )


def tightened(outcome: Outcome, about: Subject) -> tuple[Figure, Rows] | None:
    """The chart of the best goodput per GPU under each TPOT bound, from stored latencies."""
    from dse.report.charts import load as charts
    from dse.report.charts.theme import spec_of

    rows = goodput_by_bound(outcome, about)
    if not rows:
        return None
    gpus = distinct(outcome.results["gpu"])
    formats = sorted({each["precision"] for each in rows if each["precision"]})
    others = [f"TTFT ≤ {about.slo.ttft_s:g} s"] if about.slo.ttft_s is not None else []
    figure = Figure(
        name="bounds",
        title="What another TPOT bound would give",
        spec=spec_of(charts.bounds, gpus, formats, slo_tpot_s=about.slo.tpot_s),
        alt="Best goodput per GPU under each TPOT bound, a line a GPU.",
        wide=True,
        caption=" ".join(
            [
                "The best simulated point under each bound, from every request's latencies:",
                f"{100 * about.slo.attainment:g}% of requests must keep it.",
                *[f"{text} as in the SLO." for text in others],
            ]
        ),
    )
    return figure, rows


def goodput_by_bound(
    outcome: Outcome, about: Subject, metric: str = "tpot", by: Sequence[str] = _EACH
) -> Rows:
    """Per value of `by` and bound on `metric` (ttft or tpot) the most requests/s and GPU of any
    point that keeps it, as rows with `{metric}_bound_s`.

    Exact for the simulated requests: a point counts where the share of requests within the bound
    and the SLO's other bounds reaches the attainment.
    """
    shares = _shares(outcome, about, metric)
    if shares is None:
        return []
    bounds, points, good = shares
    asked = outcome.results.join(points, on="point_id", how="inner", maintain_order="right")
    rate = (asked["request_per_s"] * asked["_asked"] / asked["n_gpus"]).to_numpy()
    value = np.where(good >= about.slo.attainment - 1e-12, good * rate[:, None], 0.0)
    found: Rows = []
    indexed = asked.with_row_index("_row")
    for key, group in indexed.group_by(*by, maintain_order=True):
        inside = value[group["_row"].to_numpy()]
        best = inside.argmax(axis=0)
        for i, bound in enumerate(bounds):
            if inside[best[i], i] > 0:
                row = group.row(int(best[i]), named=True)
                found.append(
                    {
                        "point_id": row["point_id"],
                        **dict(zip(by, key, strict=True)),
                        "layout": row["layout"],
                        f"{metric}_bound_s": float(bound),
                        "goodput_req_per_s_per_gpu": float(inside[best[i], i]),
                    }
                )
    return found


def load_column(results: pl.DataFrame) -> str | None:
    """What a study varies as load: requests per second, or in flight."""
    for name in ("req_per_s", "concurrency"):
        if name in results.columns and results[name].drop_nulls().n_unique() > 1:
            return name
    return None


def _curves(outcome: Outcome, column: str, upper: str) -> Iterator[dict[str, Any]]:
    """One row a deployment, load and latency (its median and `upper`), for the front's deployments
    with three loads or more.

    `at_knee` marks the load of the highest throughput ÷ E2E (Kleinrock's power, 1979).
    """
    who = [name for name in _WHO if name in outcome.results.columns]
    members = outcome.front.unique(who, keep="first", maintain_order=True)
    n_contexts = members["context"].n_unique()
    shown = 0
    for member in members.iter_rows(named=True):
        if shown == MOST:
            return
        same = pl.all_horizontal(pl.col(name).eq_missing(pl.lit(member[name])) for name in who)
        rows = outcome.results.filter(same & pl.col(column).is_not_null())
        rows = rows.unique(column, keep="first", maintain_order=True).sort(column)
        rows = rows.gather_every(-(-rows.height // MOST_LOADS) or 1)
        if rows.height < 3:
            continue
        shown += 1
        name = f"{member['gpu']} {member['layout']}"
        if n_contexts > 1:
            name += f", {member['context']}"
        knee = _knee(rows)
        for index, row in enumerate(rows.iter_rows(named=True)):
            yield from _points(row, name, column, upper, at_knee=index == knee)


def _points(
    row: Mapping[str, Any], name: str, column: str, upper: str, *, at_knee: bool
) -> Iterator[dict[str, Any]]:
    for metric in ("ttft", "tpot"):
        for percentile in (_MEDIAN, upper):
            seconds = row.get(f"{metric}_{percentile}_s")
            if seconds is not None and np.isfinite(seconds):
                yield {
                    "point_id": row["point_id"],
                    "who": name,
                    "load": row[column],
                    "metric": metric,
                    "percentile": percentile,
                    "value": seconds * quantity(f"{metric}_{percentile}_s").scale,
                    "at_knee": at_knee and percentile == upper,
                }


def _knee(rows: pl.DataFrame) -> int | None:
    needed = ("output_tok_per_s_per_gpu", "e2e_mean_s")
    if not set(needed) <= set(rows.columns):
        return None
    power = rows.select(pl.col(needed[0]) / pl.col(needed[1])).to_series()
    return power.fill_nan(None).arg_max()


def _shares(
    outcome: Outcome, about: Subject, metric: str
) -> tuple[NDArray[np.float64], pl.DataFrame, NDArray[np.float64]] | None:
    """Bounds on `metric` (s), the points, and the share of each one's requests that keeps each."""
    sketches = outcome.sketches
    if sketches is None or sketches.is_empty() or "request_per_s" not in outcome.results.columns:
        return None
    results = outcome.results.select("point_id")
    known = sketches.join(results, on="point_id", how="semi", maintain_order="left")
    known = known.filter(pl.col("ttft_code").list.len() > 0)
    if known.is_empty():
        return None
    own, kept, ids, asked = [], [], [], []
    seconds, within = _every_request(known, about, metric)
    facts = known.select(
        "point_id", "n_requests", "n_rejected", n_samples=pl.col("ttft_code").list.len()
    )
    stop = 0
    for row in facts.iter_rows(named=True):
        start, stop = stop, stop + row["n_samples"]
        total = row["n_requests"] + row["n_rejected"]
        own.append(np.sort(seconds[start:stop][within[start:stop]]))
        kept.append(row["n_requests"] / total / row["n_samples"])
        ids.append(row["point_id"])
        asked.append(total / row["n_requests"])
    every = np.concatenate([each[each > 0] for each in own]) if own else np.array([])
    if not len(every):
        return None
    bounds = np.geomspace(every.min(), np.quantile(every, 0.995), N_BOUNDS)
    good = np.array(
        [np.searchsorted(each, bounds, side="right") * k for each, k in zip(own, kept, strict=True)]
    )
    points = pl.DataFrame({"point_id": ids, "_asked": asked, "_good": range(len(ids))})
    means = points.group_by("point_id", maintain_order=True).agg(pl.col("_asked").mean(), "_good")
    shares = np.array([good[indices].mean(axis=0) for indices in means["_good"].to_list()])
    return bounds, means.select("point_id", "_asked"), shares


def _every_request(
    known: pl.DataFrame, about: Subject, metric: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The metric of every request of every sketch, one after the other (s, 0 where it has none),
    and whether the request keeps the SLO's other bounds.
    """
    codes = [known[f"{name}_code"].explode().to_numpy() for name in _METRICS]
    sketch = LatencySketch(np.stack(codes, axis=1).astype(np.uint16), len(codes[0]))
    seconds = dict(zip(_METRICS, sketch.seconds(), strict=True))
    within = np.ones(len(codes[0]), dtype=bool)
    for name, values in seconds.items():
        bound = getattr(about.slo, f"{name}_s")
        if bound is not None and name != metric:
            within &= ~(values > bound)
    return np.where(np.isnan(seconds[metric]), 0.0, seconds[metric]), within


def _advice(outcome: Outcome) -> Table:
    """The advised batch cap of the front's deployments, one row a layout."""
    rows: list[dict[str, Any]] = []
    known = outcome.results.filter(pl.col("point_id").is_in(list(outcome.details)))
    for row in chain(outcome.front.iter_rows(named=True), known.iter_rows(named=True)):
        advice = outcome.details.get(row["point_id"], {}).get("advice")
        if advice and all(row["layout"] != each["layout"] for each in rows):
            rows.append(
                {
                    "point_id": row["point_id"],
                    "gpu": row.get("gpu"),
                    "layout": row["layout"],
                    **{name: advice.get(name) for name in _ADVICE},
                }
            )
    heads = {
        "batch_cap": "batch cap of each replica or attention rank (max_num_seqs)",
        "throughput_tok_per_s": "output of all GPUs at the cap (tok/s)",
        "plateau_tok_per_s": "without a cap (tok/s)",
        "latency_s": "E2E at the cap (s)",
        "kv_bytes_freed": "KV freed (GB per GPU)",
        "limited_by": "limited by",
    }
    frame = pl.DataFrame(rows[:MOST], infer_schema_length=None) if rows else pl.DataFrame()
    if "latency_s" in frame.columns:  # shown in seconds, unlike the steps of other columns
        frame = frame.with_columns(pl.col("latency_s") / quantity("latency_s").scale)
    return table(frame, ["gpu", "layout", *_ADVICE], heads)


_ADVICE = (
    "batch_cap",
    "throughput_tok_per_s",
    "plateau_tok_per_s",
    "latency_s",
    "kv_bytes_freed",
    "limited_by",
)


def _advice_lines(advice: Table) -> tuple[str, ...]:
    if not advice.rows:
        return ()
    return (
        "The batch cap is the smallest that stays within a few per cent of the output without a "
        "cap: beyond it more requests at once add latency and KV, not output. Where the SLO ends "
        "that earlier (limited by: latency), it is so near to the most output that keeps the SLO.",
        "This table is the saturation model's, a closed form, not the simulator's: over 500 random "
        "deployments its output is 1.8% off the simulator's in the median, 8.6% or more in one of "
        "ten, 43% at worst (docs/accuracy-saturation.md). Simulate a cap before you rely on it.",
    )
