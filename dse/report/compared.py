"""A comparison as a report: the same page, Markdown and terminal as a study's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from dse.base.units import counted
from dse.report.answer import Answer, Fact
from dse.report.compare import STILL, Comparison
from dse.report.content import Content
from dse.report.quantities import number, quantity
from dse.report.section import Figure, Part, Rows, Section
from dse.report.tables import Table, table

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["content_of", "headline", "text"]

MOST_DRAWN = 600
_X, _Y = "tpot_mean_s", "output_tok_per_s_per_gpu"


def content_of(found: Comparison) -> Content:
    """The comparison as a report."""
    part = _moved(found)
    facts = [_fact(found, metric) for metric in found.metrics[:5]]
    reasons = (("Why", found.why or ("nothing that the rows record",)),)
    return Content(
        name=f"{found.a} and {found.b}",
        question=f"What moved from {found.a} to {found.b}?",
        eyebrow=f"{counted(found.matched.height, 'point')} in common",
        answer=Answer(
            feasible=True,
            title="In one line",
            headline=headline(found),
            facts=tuple(facts),
            reasons=reasons,
        ),
        alerts=(),
        sections=(part.section, *_fronts(found)),
        datasets=part.datasets,
        shown=(),
        front=pl.DataFrame(found.rows()),
    )


def headline(found: Comparison) -> str:
    """The largest and the median change of the first metric."""
    if not found.metrics:
        return "The two have no metric in common."
    metric = found.metrics[0]
    each = quantity(metric)
    ratios = found.matched[f"{metric}_ratio"].drop_nulls().drop_nans()
    if ratios.is_empty():
        return f"{each.title} is not known of both."
    n, low, high = found.n_moved(metric), ratios.min(), ratios.max()
    if not n:
        points = counted(ratios.len(), "point")
        return f"{each.title} is the same within {100 * STILL:g}% in all of {points}."
    middle = ratios.median()
    return (
        f"{each.title} moved in {n:,} of {counted(ratios.len(), 'point')}: median "
        f"{_percent(middle)}, from {_percent(low)} to {_percent(high)}."
    )


def text(found: Comparison, width: int = 100) -> "RenderableType":
    """What `dse compare` prints: the line, why, and the points that moved most."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from dse.report.terminal import grid

    parts: list[RenderableType] = [
        Text(f"{found.a} → {found.b}: {headline(found)}", style="bold"),
        *(Text(f"  {line}") for line in found.why),
        Padding(grid(_table(found, 12), width), (1, 0, 0, 0)),
    ]
    for name, frame in ((found.a, found.only_a), (found.b, found.only_b)):
        if frame.height:
            parts.append(Text(f"On the front of {name} alone: {', '.join(_names(frame))}"))
    return Group(*parts)


def _fact(found: Comparison, metric: str) -> Fact:
    each = quantity(metric)
    ratio = found.matched[f"{metric}_ratio"].drop_nulls().drop_nans().median()
    n = found.n_moved(metric)
    note = f"{n:,} of {counted(found.matched.height, 'point')} moved"
    return Fact(title=f"{each.title}, median change", value=_percent(ratio), note=note)


def _percent(ratio: object) -> str:
    return f"{100 * (ratio - 1):+.1f}%" if isinstance(ratio, int | float) else "–"


def _table(found: Comparison, most: int) -> Table:
    columns = ["who"]
    heads = {"who": "point"}
    frame = found.matched.head(most)
    for metric in found.metrics[:4]:
        each = quantity(metric)
        shown = [
            pl.Series(
                f"{metric}_text",
                [
                    f"{number(a * each.scale)} → {number(b * each.scale)} ({_percent(r)})"
                    if a is not None and b is not None
                    else None
                    for a, b, r in frame.select(
                        f"{metric}_a", f"{metric}_b", f"{metric}_ratio"
                    ).iter_rows()
                ],
                dtype=pl.String,
            )
        ]
        frame = frame.with_columns(shown)
        columns.append(f"{metric}_text")
        heads[f"{metric}_text"] = each.label
    return table(frame, columns, heads)


def _moved(found: Comparison) -> Part:
    figures: list[Figure] = []
    datasets: dict[str, Rows] = {}
    if {_X, _Y} <= set(found.metrics):
        from dse.report.charts.compare import moves
        from dse.report.charts.theme import spec_of

        x, y = quantity(_X), quantity(_Y)
        names = (found.a, found.b)
        drawn = found.matched.head(MOST_DRAWN)
        figures.append(
            Figure(
                name="moves",
                spec=spec_of(moves, x, y, names),
                alt=f"Each common point in {found.a} and in {found.b}, joined by a line.",
                caption="One line a point, from the first to the second."
                + (
                    f" The {MOST_DRAWN} that moved most of {found.matched.height:,}."
                    if found.matched.height > MOST_DRAWN
                    else ""
                ),
                wide=True,
            )
        )
        datasets = {"moves": list(_ends(drawn)), "places": list(_places(drawn, names))}
    section = Section(
        name="moved",
        title="Points in common, most moved first",
        charts=tuple(figures),
        tables=(_table(found, 60),),
    )
    return Part(section=section, datasets=datasets)


def _ends(rows: pl.DataFrame) -> Iterator[dict[str, object]]:
    for row in rows.iter_rows(named=True):
        ends = {
            f"{axis}_{mark}": row[f"{metric}_{mark}"]
            for axis, metric in (("x", _X), ("y", _Y))
            for mark in "ab"
        }
        if all(value is not None and value > 0 for value in ends.values()):
            scaled = {
                key: value * quantity(_X if key.startswith("x") else _Y).scale
                for key, value in ends.items()
            }
            yield {"who": row["who"], **scaled}


def _places(rows: pl.DataFrame, names: tuple[str, str]) -> Iterator[dict[str, object]]:
    for ends in _ends(rows):
        for name, mark in zip(names, "ab", strict=True):
            yield {"side": name, "who": ends["who"], "x": ends[f"x_{mark}"], "y": ends[f"y_{mark}"]}


def _fronts(found: Comparison) -> Iterator[Section]:
    lists = tuple(
        (f"On the front of {name} alone", tuple((each, "") for each in _names(frame)))
        for name, frame in ((found.a, found.only_a), (found.b, found.only_b))
        if frame.height
    )
    if lists:
        yield Section(name="fronts", title="Fronts", lists=lists)


def _names(frame: pl.DataFrame) -> list[str]:
    found = []
    for row in frame.head(12).iter_rows(named=True):
        load = row.get("concurrency") or row.get("req_per_s")
        found.append(f"{row.get('gpu')} {row.get('layout')}" + (f" at {load:g}" if load else ""))
    return found
