"""The Pareto chart: what each GPU gives against what each user waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt

from dse.report.charts._base import (
    HEIGHT,
    PICKED,
    axis,
    dashes,
    layered,
    named,
    picked,
    shown,
    stretched,
    tooltips,
    upward,
)
from dse.report.charts.theme import colours, shapes
from dse.report.quantities import Quantity

__all__ = ["FrontAxes", "front"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontAxes:
    """What the Pareto chart shows.

    `gpus`, `families` and `precisions` fix colours, shapes and lines. `bounds` are the SLO's lines
    as (axis, value in the shown unit, label). The spans are what the axes show, in shown units;
    `log_x`, `log_y` suit values over decades. `own_fronts`: each GPU has a line (`on_own_front`).
    `colour_by` is `gpu`, or `family` where there is one GPU.
    """

    x: Quantity
    y: Quantity
    gpus: Sequence[str]
    families: Sequence[str]
    x_span: tuple[float, float]
    y_span: tuple[float, float]
    precisions: Sequence[str] = ()
    bounds: Sequence[tuple[str, float, str]] = ()
    log_x: bool = False
    log_y: bool = False
    optimistic: bool = False
    own_fronts: bool = False
    colour_by: str = "gpu"
    details: Sequence[str] = ()


def front(axes: FrontAxes) -> alt.LayerChart:
    """Dominated points faint, infeasible ones fainter, the front full and joined by a line.

    Datasets: `results` (one row a drawn point, `on_front`), `optimistic` where
    `axes.optimistic`. A front that mixes precisions gets one line a precision.
    """
    texts = ["gpu", "layout", "precision", "context"]
    numbers = [axes.x.column, axes.y.column, *axes.details]
    base = shown(alt.Chart(named("results")), numbers)
    place = base.encode(
        x=_x(axes),
        y=_y(axes),
        color=_colour(axes),
        shape=alt.Shape(
            "family:N",
            scale=shapes(axes.families),
            title="layout family",
        ),
        tooltip=tooltips(texts + numbers),
    )
    legend = alt.selection_point(name="kept", fields=[axes.colour_by], bind="legend")
    beaten = _faint(place, "!datum.on_front && datum.feasible !== false", 0.7, legend)
    failing = _faint(place, "!datum.on_front && datum.feasible === false", 0.16, legend)
    members = (
        place.transform_filter("datum.on_front")
        .mark_point(size=120, filled=True, opacity=1.0, cursor="pointer")
        .encode(opacity=_unless_hidden(legend, 1.0, 0.15))
    )
    ring = (
        base.transform_filter(f"datum.point_id === {PICKED}")
        .mark_point(size=420, shape="circle", strokeWidth=2.5, color="#D55E00", clip=True)
        .encode(x=_x(axes), y=_y(axes))
    )
    layers = [*_rules(axes), *_lines(axes, base), ring, failing, beaten.add_params(legend), members]
    return layered(layers, HEIGHT).add_params(picked())


def _faint(place: alt.Chart, which: str, opacity: float, legend: alt.Parameter) -> alt.Chart:
    points = place.transform_filter(which).mark_point(
        size=34, strokeWidth=1.3, cursor="pointer", clip=True
    )
    faint: alt.Chart = points.encode(opacity=_unless_hidden(legend, opacity, 0.03))
    return faint


def _unless_hidden(legend: alt.Parameter, shown: float, hidden: float) -> alt.OpacityValue:
    """The opacity of a mark whose name the legend shows, and of one whose name it hides."""
    either = alt.when(legend).then(alt.value(shown)).otherwise(alt.value(hidden))
    return alt.OpacityValue(**either)


def _colour(axes: FrontAxes) -> alt.Color:
    if axes.colour_by == "gpu":
        return alt.Color("gpu:N", scale=colours(axes.gpus), title="GPU")
    return alt.Color("family:N", scale=colours(axes.families), title="layout family")


def _x(axes: FrontAxes) -> alt.X:
    return alt.X(
        f"{axes.x.column}_shown:Q", axis=axis(axes.x), scale=stretched(axes.x_span, axes.log_x)
    )


def _y(axes: FrontAxes) -> alt.Y:
    return alt.Y(
        f"{axes.y.column}_shown:Q", axis=upward(axes.y), scale=stretched(axes.y_span, axes.log_y)
    )


def _lines(axes: FrontAxes, base: alt.Chart) -> list[alt.Chart]:
    """The front, and the dashed front that the floors would allow."""
    line = base.transform_filter("datum.on_front").mark_line(
        color="gray", strokeWidth=1.6, opacity=0.8, interpolate="linear"
    )
    line = line.encode(x=_x(axes), y=_y(axes), order=alt.Order(f"{axes.x.column}_shown:Q"))
    if len(axes.precisions) > 1:
        line = line.encode(**dashes(axes.precisions))
    found = [line]
    if axes.own_fronts:
        own = base.transform_filter("datum.on_own_front").mark_line(strokeWidth=1.6, opacity=0.9)
        order = alt.Order(f"{axes.x.column}_shown:Q")
        found.append(own.encode(x=_x(axes), y=_y(axes), order=order, color=_colour(axes)))
    if axes.optimistic:
        dashed = shown(alt.Chart(named("optimistic")), [axes.x.column, axes.y.column]).mark_line(
            color="gray", strokeWidth=1.2, strokeDash=[2, 4], clip=True
        )
        order = alt.Order(f"{axes.x.column}_shown:Q")
        found.append(dashed.encode(x=_x(axes), y=_y(axes), order=order))
    return found


def _rules(axes: FrontAxes) -> list[alt.Chart]:
    """A rule and its label for each bound; of a bound beyond the axes the label alone, at the edge.

    A mark outside the scale's domain would squeeze the plot until the mark fits.
    """
    found = []
    for where, value, text in axes.bounds:
        low, high = axes.x_span if where == "x" else axes.y_span
        edge = min(max(value, low), high)
        up, down = ("→", "←") if where == "x" else ("↑", "↓")
        label = f"{text} {up}" if value > high else f"{down} {text}" if value < low else text
        data = alt.Chart(alt.InlineData(values=[{"bound": edge, "text": label}]))
        late = where == "x" and (
            edge > (low * high**2) ** (1 / 3) if axes.log_x else edge > low + 0.7 * (high - low)
        )
        align: Literal["left", "right"] = "right" if late else "left"
        words = data.mark_text(
            align=align, baseline="top", dx=-4 if late else 4, dy=2, color="#D55E00"
        )
        words = words.encode(text=alt.Text("text:N"))
        rule = data.mark_rule(strokeDash=[5, 4], strokeWidth=1.4, color="#D55E00")
        if where == "x":
            x = alt.X("bound:Q")
            marks = [rule.encode(x=x), words.encode(x=x, y=alt.YValue(0))]  # type: ignore[no-untyped-call]
        else:
            y = alt.Y("bound:Q")
            marks = [rule.encode(y=y), words.encode(y=y, x=alt.XValue(0))]  # type: ignore[no-untyped-call]
        found += marks if value == edge else marks[1:]
    return found
