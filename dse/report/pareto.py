"""The Pareto front as a section: its chart, what another bound would give, and its table."""

from collections.abc import Sequence

import polars as pl

from dse.report.drawn import drawn, span, spans_decades
from dse.report.layouts import FAMILIES, sentence
from dse.report.load import tightened
from dse.report.quantities import Quantity, is_known
from dse.report.record import Outcome
from dse.report.section import Figure, Part, Rows, Section
from dse.report.subject import Subject
from dse.report.tables import front_table

__all__ = ["pareto"]

MOST_MEMBERS = 200
_BEYOND = 3.0


def pareto(outcome: Outcome, about: Subject, details: Sequence[str]) -> Part | None:
    """The Pareto chart and the front's table; the simulated points alone where none is feasible,
    and None where none was simulated.
    """
    from dse.report.charts.front import FrontAxes, front
    from dse.report.charts.theme import spec_of

    x, y = about.x, about.y
    words = ["point_id", "gpu", "n_gpus", "layout", "family", "precision", "context", "on_front"]
    columns = [*words, "on_own_front", "feasible", x.column, y.column, *details]
    shown = drawn(outcome.results, about, columns)
    if shown.rows.is_empty():
        return None
    bounds = [
        (where, bound.limit * axis.scale, bound.text)
        for bound in about.bounds()
        for where, axis in (("x", x), ("y", y))
        if bound.column == axis.column or (where == "x" and _same_latency(bound.column, axis))
    ]
    members = outcome.front
    precisions = sorted(set(members["precision"].drop_nulls()))
    near = shown.rows.filter(_near(shown.rows, (x, y)))
    floors = _in_sight(_floors(outcome, x, y), near, x, y)
    spans = [
        span(near[each.column], each, _beside(where, each, bounds, floors))
        for where, each in (("x", x), ("y", y))
    ]
    axes = FrontAxes(
        x=x,
        y=y,
        gpus=_ordered(shown.rows, "gpu"),
        families=[name for name in FAMILIES if name in set(shown.rows["family"])],
        precisions=precisions,
        bounds=bounds,
        x_span=spans[0],
        y_span=spans[1],
        log_x=spans_decades(pl.Series(spans[0])),
        log_y=spans_decades(pl.Series(spans[1])),
        details=[name for name in details if name not in (x.column, y.column)][:6],
        optimistic=bool(floors),
        own_fronts="on_own_front" in shown.rows.columns,
        colour_by="gpu" if shown.rows["gpu"].n_unique() > 1 else "family",
    )
    figure = Figure(
        name="front",
        spec=spec_of(front, axes),
        alt=_alt(outcome, x, y),
        wide=True,
        caption=_caption(
            " ".join([shown.note, _beyond(shown.rows.height - near.height)]).strip(),
            has_floors=bool(floors),
            has_front=members.height > 0,
        ),
    )
    words_of = [
        {"point_id": row["point_id"], "sentence": sentence(row)}
        for row in members.head(MOST_MEMBERS).iter_rows(named=True)
    ]
    datasets: dict[str, Rows] = {"results": shown.rows.to_dicts(), "words": words_of}
    if floors:
        datasets["optimistic"] = floors
    datasets["front"] = _plain(members.head(MOST_MEMBERS)).to_dicts()
    figures = [figure]
    if (second := tightened(outcome, about)) is not None:
        figures.append(second[0])
        datasets["bounds"] = second[1]
    section = Section(
        name="front",
        title="Pareto front" if members.height else "What was simulated",
        lines=_mixed(members),
        charts=tuple(figures),
        tables=(front_table(members, about, outcome.results),),
    )
    return Part(section=section, datasets=datasets)


def _near(rows: pl.DataFrame, axes: Sequence[Quantity]) -> pl.Expr:
    """Which rows the axes are made for: those within `_BEYOND` times the span of the feasible ones,
    where there are some. Others would squeeze what answers into a corner.
    """
    feasible = rows.filter("feasible") if "feasible" in rows.columns else rows.clear()
    inside = pl.lit(value=True)
    for each in axes if feasible.height else ():
        low, high = span(feasible[each.column], each)
        value = pl.col(each.column) * each.scale
        inside &= value.is_between(low / _BEYOND, high * _BEYOND)
    return inside


def _beyond(n: int) -> str:
    return f"{n:,} that miss the SLO or a constraint lie beyond these axes." if n else ""


def _floors(outcome: Outcome, x: Quantity, y: Quantity) -> Rows:
    """What decoding alone would give at peak rates, from the floors of the front's deployments: at
    c requests in flight a step takes t_opt and yields c tokens. In order along x.

    Empty where the axes are others, or where a step is not a token a request (drafts, stages).
    """
    if not x.column.startswith("tpot") or y.column != "output_tok_per_s_per_gpu":
        return []
    found = []
    for row in outcome.front.iter_rows(named=True):
        plain = (row.get("decode_pp") or row.get("pp") or 1) == 1
        drafts = row.get("speculative") not in (None, "none")
        if not plain or drafts:
            continue
        for each in outcome.details.get(row["point_id"], {}).get("curve") or []:
            rate = each["concurrency"] / each["t_opt_s"] / row["n_gpus"]
            found.append({x.column: each["t_opt_s"], y.column: rate})
    best, kept = 0.0, []
    for each in sorted(found, key=lambda pair: (pair[x.column], -pair[y.column])):
        if each[y.column] > best:
            best = each[y.column]
            kept.append(each)
    return kept


def _in_sight(floors: Rows, rows: pl.DataFrame, x: Quantity, y: Quantity) -> Rows:
    """The floors that the axes of `rows` show, where they make a line; a step beyond the axes tells
    nothing and would only squeeze the points.
    """
    sides = [(each, span(rows[each.column], each)) for each in (x, y)]
    seen = [
        row
        for row in floors
        if all(low / 2 <= row[each.column] * each.scale <= 2 * high for each, (low, high) in sides)
    ]
    return seen if len(seen) > 1 else []


def _plain(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` without the facts that walls and floors read, which no reader asks a page for."""
    known = [name for name in rows.columns if is_known(name)]
    return rows.select(known)


def _beside(
    where: str, each: Quantity, bounds: Sequence[tuple[str, float, str]], floors: Rows
) -> list[float]:
    """Values that an axis shows where they are near its points: SLO bounds and floors."""
    stated = [value for axis, value, _ in bounds if axis == where]
    return [*stated, *(row[each.column] * each.scale for row in floors)]


def _same_latency(bound: str, axis: Quantity) -> bool:
    """A bound on a percentile also stands on the axis of the same latency's mean."""
    return axis.column.endswith("_s") and bound.partition("_")[0] == axis.column.partition("_")[0]


def _mixed(members: pl.DataFrame) -> tuple[str, ...]:
    """What a front mixes that does not answer alike."""
    found = []
    for column, what in (("precision", "precisions"), ("context", "contexts"), ("model", "models")):
        values = sorted(set(members[column].drop_nulls())) if column in members.columns else []
        if len(values) > 1:
            own = "; each precision has a line of its own" if column == "precision" else ""
            found.append(
                f"The front mixes {what} ({', '.join(values)}), which do not ask or answer alike: "
                f"compare within one{own}."
            )
    return tuple(found)


def _alt(outcome: Outcome, x: Quantity, y: Quantity) -> str:
    text = f"Scatter of {outcome.results.height:,} simulated points: {y.label} against {x.label}"
    if not outcome.front.height:
        return f"{text}; none is feasible."
    return f"{text}; {outcome.front.height} are on the front. The table below holds them."


def _caption(note: str, *, has_floors: bool, has_front: bool) -> str:
    if not has_front:
        return f"None of these points keeps the SLO and the constraints. {note}".strip()
    text = "Open points are beaten in every objective by one on the line; the faintest miss the "
    text += "SLO or a constraint. Choose a point or a row to see it in every chart, a colour in "
    text += "the legend to see it alone."
    if has_floors:
        text += " Dotted: what decoding alone would give at peak rates (the floor t_opt)."
    return f"{text} {note}".strip()


def _ordered(rows: pl.DataFrame, column: str) -> list[str]:
    return sorted(set(rows[column].drop_nulls()))
