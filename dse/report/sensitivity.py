"""How far the answer holds: cost against price, load and bounds of the SLO, context by context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from dse.report.answer import unproved
from dse.report.panels import Compared, Panel, compared, panels
from dse.report.quantities import number, quantity
from dse.report.record import Outcome
from dse.report.section import Figure, Part, Rows, Section
from dse.report.subject import Subject
from dse.report.tables import Table, distinct, table

__all__ = ["Held", "held", "sensitivity"]

MOST_CHANGES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Who is best from `x` on, until the next one; `is_first` where it has no point before `x`."""

    x: float
    who: str
    is_first: bool = False


def sensitivity(outcome: Outcome, about: Subject) -> Part | None:
    """Panels of price, load, TPOT bound and TTFT bound, a column a context; None without a feasible
    point.
    """
    feasible = outcome.results.filter(pl.col("feasible").fill_null(value=False))
    if feasible.is_empty():
        return None
    asked = compared(outcome, feasible)
    held_names = distinct(outcome.results[asked.column])
    if not outcome.results["context"].is_in(asked.contexts).all(ignore_nulls=False):
        within = pl.col("context").is_in(asked.contexts)
        outcome = replace(outcome, results=outcome.results.filter(within))
        feasible = feasible.filter(within)
    every = panels(outcome, about, feasible, asked)
    found = [each for each in every if each.rows]
    if not found:
        return None
    names = sorted({row[asked.column] for each in found for row in each.rows})
    # Every value that the results hold has a colour, so that none changes it from chart to chart.
    coloured = names if asked.column == "family" else held_names
    section = Section(
        name="sensitivity",
        title="What would change the answer",
        lines=(_line(found, asked, len(names), is_proved=not unproved(outcome)),),
        lead=(_flips(found, asked),),
        charts=tuple(_figure(each, asked, coloured) for each in found),
    )
    return Part(section=section, datasets={_dataset(each): _bounded(each) for each in found})


def held(rows: Rows, keys: Sequence[str], better: str, tolerance: float) -> list[Held]:
    """Who is best along x. Each keeps its last value until its next; another takes over where it
    is better by more than `tolerance` (relative): what the search does not tell apart is no change.
    """
    sign = -1.0 if better == "max" else 1.0
    values: dict[str, float] = {}
    found: list[Held] = []
    for x in sorted({row["x"] for row in rows}):
        before = set(values)
        values |= {_who(row, keys): row["y"] for row in rows if row["x"] == x}
        best = min(values, key=lambda who: (sign * values[who], who))
        if not found or (
            best != found[-1].who and abs(values[best] / values[found[-1].who] - 1) > tolerance
        ):
            found.append(Held(x=x, who=best, is_first=best not in before))
    return found


def _who(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    return ", ".join(str(row[name]) for name in keys)


def _bounded(panel: Panel) -> Rows:
    """The rows of a panel; the first of each context has `bound`, so that it is drawn once."""
    seen: set[str] = set()
    found = []
    for row in panel.rows:
        new = row["context"] not in seen
        seen.add(row["context"])
        found.append({**row, "bound": panel.bound if new else None})
    return found


def _dataset(panel: Panel) -> str:
    return f"sensitivity_{panel.name}"


def _line(found: Sequence[Panel], asked: Compared, n_compared: int, *, is_proved: bool) -> str:
    what = "layout family" if asked.column == "family" else quantity(asked.column).title
    text = f"The best of each {what} while one thing moves and the rest stays as the study asks."
    if not is_proved:
        text += (
            " All among the points that were simulated: the search ended before its proof, and "
            "what it left open may be better anywhere here."
        )
    elif n_compared > 1 and asked.tolerance > 0:
        text += (
            f" Another counts as better from {100 * asked.tolerance:g}% on, the tolerance of the "
            "search."
        )
    if asked.priced and any(each.name in {"tpot", "ttft"} for each in found):
        text += (
            " Where a bound moves, only requests that keep it count as output: a point that just "
            "keeps the SLO costs more there than at its price."
        )
    if len(asked.contexts) > 1:
        text += " A panel has one context."
    return text


def _flips(found: Sequence[Panel], asked: Compared) -> Table:
    """Who is best from where on, a row a panel."""
    rows = []
    for panel in found:
        for context in asked.contexts:
            own = [row for row in panel.rows if row["context"] == context]
            text = _at_price(own, asked) if panel.straight else _along(own, panel, asked)
            if text:
                rows.append({"varied": panel.x_title, "context": context, "best": text})
    heads = {"varied": "while this moves", "best": "the best, and from where on another"}
    columns = ["varied", "context", "best"] if len(asked.contexts) > 1 else ["varied", "best"]
    return table(pl.DataFrame(rows), columns if rows else [], heads)


def _along(rows: Rows, panel: Panel, asked: Compared) -> str:
    """Who is best from where on; where the lead changes often, between whom it does."""
    found = held(rows, asked.keys, panel.y.better, asked.tolerance)
    parts = [_from(each) if i else each.who for i, each in enumerate(found)]
    if len(parts) > MOST_CHANGES:
        others = dict.fromkeys(each.who for each in found[1:-1])
        first, last = number(found[1].x), number(found[-1].x)
        parts[1:-1] = [f"from {first} to {last} now one, now the other: {' and '.join(others)}"]
    return "; ".join(parts)


def _from(held: Held) -> str:
    """Who takes over and from where; where it only begins there, it did not lose before."""
    begins = " (no point of it simulated below)" if held.is_first else ""
    return f"from {number(held.x)} {held.who}{begins}"


def _at_price(rows: Rows, asked: Compared) -> str:
    """The cheapest at the first price of each, and the price at which the next is as cheap."""
    first: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["dot"]:
            first.setdefault(_who(row, asked.keys), row)
    ranked = sorted(first.items(), key=lambda item: item[1]["y"])
    if asked.column == "family" or not ranked:
        return ""
    best, at = ranked[0]
    others = [each for each in ranked if each[1][asked.column] != at[asked.column]]
    if not others:
        return best
    until = at["x"] * others[0][1]["y"] / at["y"]
    return f"{best} at {number(at['x'])}, up to {number(until)}; above that {others[0][0]}"


def _figure(panel: Panel, asked: Compared, names: Sequence[str]) -> Figure:
    from dse.report.charts.sensitivity import MultipleAxes, multiples
    from dse.report.charts.theme import spec_of

    values = [row["y"] for row in panel.rows]
    several = len(asked.contexts) > 1
    axes = MultipleAxes(
        name=_dataset(panel),
        x_title=panel.x_title,
        y=panel.y,
        column=asked.column,
        names=names,
        precisions=sorted({row["precision"] for row in panel.rows if row["precision"]}),
        contexts=asked.contexts,
        has_bound=panel.bound is not None,
        steps=panel.steps,
        log=not panel.straight and min(values, default=0.0) > 0,
    )
    return Figure(
        name=f"sensitivity-{panel.name}",
        title=panel.title,
        spec=spec_of(multiples, axes),
        alt=f"{panel.y.label} against {panel.x_title}, a line a {quantity(asked.column).title}"
        + (f", a panel a context: {', '.join(asked.contexts)}." if several else "."),
        caption=panel.caption,
        wide=several,
    )
