"""Small multiples: one measure against what is varied, a panel a context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from dse.report.charts._base import dashes, layered, named, tooltips
from dse.report.charts.theme import colours
from dse.report.quantities import Quantity, quantity

__all__ = ["MultipleAxes", "multiples"]

HEIGHT = 220
SLO_COLOUR = "#D55E00"


@dataclass(frozen=True, slots=True, kw_only=True)
class MultipleAxes:
    """What the panels of one row show: `y` against `x` of the rows of dataset `name`, a colour a
    value of `column`, a panel a context. `has_bound`: one row a context has `bound`, where the
    study stands on x; `steps`: y holds until the next point; `log`: both axes are logarithmic.
    """

    name: str
    x_title: str
    y: Quantity
    column: str
    names: Sequence[str]
    precisions: Sequence[str]
    contexts: Sequence[str]
    has_bound: bool = False
    steps: bool = True
    log: bool = True


def multiples(axes: MultipleAxes) -> alt.LayerChart | alt.FacetChart:
    """The panels side by side, or the one panel where there is one context."""
    layers = _layers(axes)
    if len(axes.contexts) < 2:
        return layered([layer.properties(data=named(axes.name)) for layer in layers], HEIGHT)
    panel = alt.LayerChart(layer=layers, data=named(axes.name), height=HEIGHT)
    title = quantity("context").label
    faceted: alt.FacetChart = panel.facet(
        facet=alt.Facet("context:N", sort=list(axes.contexts), title=title),
        columns=len(axes.contexts),
        spacing=16,
    )
    return faceted


def _lines(title: str, n_panels: int) -> Any:
    """A title in two lines where panels leave it little room."""
    words, _, unit = title.partition(" (")
    return [words, f"({unit}"] if unit and n_panels > 1 else title


def _layers(axes: MultipleAxes) -> list[alt.Chart]:
    scale = alt.Scale(type="log", nice=False, padding=10) if axes.log else alt.Scale()
    arrow = {"min": " ↓ better", "max": " ↑ better"}[axes.y.better]
    base = alt.Chart().encode(
        x=alt.X("x:Q", scale=scale, title=_lines(axes.x_title, len(axes.contexts))),
        y=alt.Y("y:Q", scale=scale, title=axes.y.label + arrow),
        color=alt.Color(
            f"{axes.column}:N", scale=colours(axes.names), title=quantity(axes.column).title
        ),
    )
    tip = [
        *tooltips([axes.column, "precision", "layout", "context"]),
        alt.Tooltip("x:Q", title=axes.x_title, format=",.4~g"),
        alt.Tooltip("y:Q", title=axes.y.label, format=",.4~g"),
    ]
    shape: Any = "step-after" if axes.steps else "linear"
    line = base.mark_line(strokeWidth=1.8, interpolate=shape).encode(**dashes(axes.precisions))
    dots = base.transform_filter("datum.dot").mark_point(filled=True, size=44, opacity=1)
    layers = [line, dots.encode(tooltip=tip)]
    if axes.has_bound:
        stated = alt.Chart().transform_filter("isValid(datum.bound)")
        rule = stated.mark_rule(strokeDash=[5, 4], strokeWidth=1.4, color=SLO_COLOUR)
        layers.insert(0, rule.encode(x=alt.X("bound:Q")))
    return layers
