"""What the charts share: named data, scaled values, tooltips, the picked point."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from dse.report.quantities import Quantity, quantity

PICKED = "picked"
"""The signal that holds the `point_id` that the reader chose; every chart of a page shares it."""

HEIGHT = 340


def picked() -> alt.Parameter:
    """The shared signal."""
    return alt.param(name=PICKED, value="")


def stretched(span: tuple[float, float], log: bool) -> alt.Scale:
    """A scale that shows `span` (in the shown unit) with room at its ends."""
    if log:
        return alt.Scale(type="log", domain=list(span), nice=False, padding=16)
    return alt.Scale(type="linear", domain=list(span), nice=False, zero=False, padding=16)


def layered(layers: Sequence[alt.Chart], height: float) -> alt.LayerChart:
    """Layers on one pair of axes, as wide as the page lets them be."""
    return alt.LayerChart(layer=list(layers), width="container", height=height)


def named(name: str) -> Any:
    """The dataset of this name, which the page or the picture brings."""
    return alt.NamedData(name=name)


def scaled(column: str) -> str:
    """The expression of a column in its shown unit."""
    each = quantity(column)
    return f"datum['{column}'] * {each.scale:g}" if each.scale != 1.0 else f"datum['{column}']"


def axis(each: Quantity, **options: Any) -> alt.Axis:
    """An axis titled with quantity and unit; an arrow says which way is good."""
    arrow = {"min": " ← better", "max": " → better"}.get(each.better, "")
    return alt.Axis(title=each.label + arrow, **options)


def upward(each: Quantity, **options: Any) -> alt.Axis:
    """The same for a vertical axis."""
    arrow = {"min": " ↓ better", "max": " ↑ better"}.get(each.better, "")
    return alt.Axis(title=each.label + arrow, **options)


def dashes(precisions: Sequence[str]) -> dict[str, Any]:
    """The encoding that gives each precision's lines a dash of their own, where there are more."""
    if len(precisions) < 2:
        return {"detail": alt.Detail("precision:N")}
    patterns = [[1, 0], [6, 3], [2, 3], [8, 3, 2, 3]]
    scale = alt.Scale(
        domain=list(precisions), range=[patterns[i % 4] for i in range(len(precisions))]
    )
    return {"strokeDash": alt.StrokeDash("precision:N", scale=scale, title="weights / KV")}


def tooltips(columns: Sequence[str]) -> list[alt.Tooltip]:
    """What hovering shows: texts as they are, numbers in their shown unit.

    A number needs `<column>_shown` beside it, which `shown` calculates.
    """
    return [_tooltip(column) for column in columns]


def shown(chart: alt.Chart, columns: Sequence[str]) -> alt.Chart:
    """`chart` with `<column>_shown` for each column: its value in its shown unit."""
    for column in columns:
        chart = chart.transform_calculate(**{f"{column}_shown": scaled(column)})
    return chart


def _tooltip(column: str) -> alt.Tooltip:
    each = quantity(column)
    if column in TEXTS:
        return alt.Tooltip(field=column, type="nominal", title=each.title)
    return alt.Tooltip(
        field=f"{column}_shown", type="quantitative", title=each.label, format=",.4~g"
    )


TEXTS = frozenset(
    {"model", "gpu", "engine", "weights", "kv", "branch", "layout", "family", "precision"}
    | {"context", "point_id"}
)
