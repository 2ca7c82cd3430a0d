"""Latency against load, and goodput against the TPOT bound."""

from collections.abc import Sequence

import altair as alt

from dse.report.charts._base import PICKED, dashes, layered, named, picked, tooltips
from dse.report.charts.theme import colours
from dse.report.quantities import quantity

__all__ = ["bounds", "latency"]

HEIGHT = 260
SLO_COLOUR = "#D55E00"
_LOG = alt.Scale(type="log", nice=False, padding=12)


def latency(
    metric: str, load: str, names: Sequence[str], upper: str = "p99", *, bound_s: float | None
) -> alt.LayerChart:
    """One latency's median and percentile `upper` against load, a colour a deployment.

    Dataset `load`: rows of every metric, `value` in the shown unit.
    """
    each = quantity(f"{metric}_{upper}_s")
    base = (
        alt.Chart(named("load"))
        .transform_filter(f"datum.metric === '{metric}'")
        .encode(
            x=alt.X("load:Q", scale=_LOG, title=quantity(load).label),
            y=alt.Y("value:Q", scale=_LOG, title=f"{metric.upper()} ({each.unit}) ↓ better"),
            color=alt.Color("who:N", scale=colours(names), title="deployment"),
        )
    )
    dash = alt.StrokeDash(
        "percentile:N",
        scale=alt.Scale(domain=[upper, "p50"], range=[[1, 0], [4, 3]]),
        title="percentile",
    )
    tip = [
        *tooltips(["who", "percentile"]),
        alt.Tooltip("load:Q", title=quantity(load).label, format=",.4~g"),
        alt.Tooltip("value:Q", title=f"{metric.upper()} ({each.unit})", format=",.4~g"),
    ]
    lines = base.mark_line(strokeWidth=1.8).encode(strokeDash=dash)
    size = alt.SizeValue(
        **alt.condition(f"datum.point_id === {PICKED}", alt.value(160), alt.value(28))
    )
    dots = base.mark_point(filled=True, opacity=1, cursor="pointer").encode(size=size, tooltip=tip)
    knees = (
        base.transform_filter("datum.at_knee")
        .mark_point(filled=True, size=150, shape="diamond", opacity=1)
        .encode(tooltip=tip)
    )
    layers = [*_rule("y", bound_s, each.scale), lines, knees, dots]
    return layered(layers, HEIGHT).add_params(picked())


def bounds(
    gpus: Sequence[str], precisions: Sequence[str] = (), *, slo_tpot_s: float | None
) -> alt.LayerChart:
    """Best goodput per GPU against the TPOT bound. Dataset `bounds`, bound in seconds."""
    each = quantity("tpot_p99_s")
    y = quantity("goodput_req_per_s_per_gpu")
    base = (
        alt.Chart(named("bounds"))
        .transform_calculate(bound=f"datum.tpot_bound_s * {each.scale:g}")
        .encode(
            x=alt.X("bound:Q", scale=_LOG, title="TPOT bound (ms)"),
            y=alt.Y(f"{y.column}:Q", title=f"{y.label} ↑ better"),
            color=alt.Color("gpu:N", scale=colours(gpus), title="GPU"),
        )
    )
    tip = [
        *tooltips(["gpu", "layout", "precision"]),
        alt.Tooltip("bound:Q", title="TPOT bound (ms)", format=",.4~g"),
        alt.Tooltip(f"{y.column}:Q", title=y.label, format=",.4~g"),
    ]
    line = base.mark_line(strokeWidth=1.8, interpolate="step-after").encode(**dashes(precisions))
    dots = base.mark_point(filled=True, size=30, opacity=1, cursor="pointer").encode(tooltip=tip)
    return layered([*_rule("x", slo_tpot_s, each.scale), line, dots], HEIGHT)


def _rule(where: str, bound_s: float | None, scale: float) -> list[alt.Chart]:
    """The SLO's bound as a dashed line, where one is set."""
    if bound_s is None:
        return []
    data = alt.Chart(alt.InlineData(values=[{"limit": bound_s * scale}]))
    rule = data.mark_rule(strokeDash=[5, 4], strokeWidth=1.4, color=SLO_COLOUR)
    tip = [alt.Tooltip("limit:Q", title="SLO")]
    if where == "x":
        return [rule.encode(x=alt.X("limit:Q"), tooltip=tip)]
    return [rule.encode(y=alt.Y("limit:Q"), tooltip=tip)]
