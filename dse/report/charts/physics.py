"""Charts that say why: wall order, floors against concurrency, step breakdown, roofline."""

from collections.abc import Sequence

import altair as alt

from dse.report.charts._base import PICKED, layered, named, picked
from dse.report.charts.theme import colours, shapes

__all__ = ["breakdown", "floors", "roofline", "wall_order"]

HEIGHT = 280
PHASES = ("decode", "prefill")
_ROW = 30
_LOG = alt.Scale(type="log", nice=False, padding=14)


def wall_order(names: Sequence[str], walls: Sequence[str], *, has_load: bool) -> alt.LayerChart:
    """A dot a wall against requests in flight. Datasets `wall_order`, `wall_load`."""
    y = alt.Y("who:N", sort=list(names), axis=alt.Axis(title=None, grid=True))
    x = alt.X("at:Q", scale=_LOG, title="requests in flight")
    base = alt.Chart(named("wall_order")).encode(
        y=y, x=x, tooltip=[*_texts("who", "wall"), alt.Tooltip("at:Q", format=",.4~g", title="at")]
    )
    dots = base.mark_point(filled=True, size=110, opacity=1, cursor="pointer").encode(
        color=alt.Color("wall:N", scale=colours(walls), title="wall"),
        shape=alt.Shape("wall:N", scale=shapes(walls), title="wall"),
    )
    layers = [dots]
    if has_load:
        load = alt.Chart(named("wall_load")).mark_tick(thickness=3, size=18, color="gray")
        layers.insert(0, load.encode(y=y, x=x, tooltip=[*_texts("who"), alt.Tooltip("at:Q")]))
    return layered(layers, _ROW * max(len(names), 2))


def floors(names: Sequence[str]) -> alt.LayerChart:
    """A band from t_opt to t_sum a layout. Dataset `floors`, times in seconds."""
    base = (
        alt.Chart(named("floors"))
        .transform_calculate(low="datum.t_opt_s * 1000", high="datum.t_sum_s * 1000")
        .encode(
            x=alt.X("concurrency:Q", scale=_LOG, title="requests in flight"),
            color=alt.Color("who:N", scale=colours(names), title="layout"),
        )
    )
    y = alt.Y("low:Q", scale=_LOG, title="TPOT floor (ms) ↓ better")
    band = base.mark_area(opacity=0.14, line=False).encode(y=y, y2=alt.Y2("high:Q"))
    tip = [
        *_texts("who"),
        alt.Tooltip("concurrency:Q", format=",.4~g"),
        alt.Tooltip("low:Q", format=",.4~g", title="t_opt (ms)"),
        alt.Tooltip("high:Q", format=",.4~g", title="t_sum (ms)"),
    ]
    line = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=30)).encode(y=y, tooltip=tip)
    return layered([band, line], HEIGHT)


def breakdown(
    names: Sequence[str], families: Sequence[str], phases: Sequence[str]
) -> alt.LayerChart:
    """Stacked shares by family, a bar a layout (and phase); the chosen point's bar has an edge.

    Dataset `breakdown`.
    """
    rows = ["who:N"] if len(phases) == 1 else ["who:N", "phase:N"]
    base = alt.Chart(named("breakdown"))
    if len(rows) > 1:
        base = base.transform_calculate(bar="datum.who + ', ' + datum.phase")
    y = alt.Y(
        "who:N" if len(rows) == 1 else "bar:N",
        sort=list(names) if len(rows) == 1 else None,
        axis=alt.Axis(title=None),
    )
    chosen = f"datum.point_id === {PICKED}"
    bars = base.mark_bar(cursor="pointer", height=18).encode(
        y=y,
        x=alt.X(
            "share:Q",
            stack=True,
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1], title="share of busy time"),
        ),
        color=alt.Color("family:N", scale=colours(families), title="kernel family"),
        order=alt.Order("rank:Q"),
        stroke=alt.StrokeValue(
            **alt.condition(chosen, alt.value("currentColor"), alt.value("transparent"))
        ),
        strokeWidth=alt.StrokeWidthValue(2),
        tooltip=[
            *_texts("who", "phase", "family"),
            alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("seconds:Q", format=",.4~g"),
        ],
    )
    height = 26 * len(names) * len(phases) + 10
    return layered([bars], height).add_params(picked())


def roofline(gpus: Sequence[str]) -> alt.LayerChart:
    """Roofs as lines, steps as bars from t_sum to t_opt. Datasets `roof`, `operating`."""
    x = alt.X("intensity:Q", scale=_LOG, title="arithmetic intensity (FLOP per HBM byte)")
    title = "TFLOP/s per GPU"
    colour = alt.Color("gpu:N", scale=colours(gpus), title="GPU")
    roofs = (
        alt.Chart(named("roof"))
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=alt.Y("tflop_per_s:Q", scale=_LOG, title=title),
            color=colour,
            detail=alt.Detail("roof:N"),
            tooltip=_texts("roof"),
        )
    )
    steps = alt.Chart(named("operating")).encode(x=x, color=colour)
    tip = [
        *_texts("who", "phase"),
        alt.Tooltip("intensity:Q", format=",.4~g", title="FLOP/B"),
        alt.Tooltip("low_tflop_per_s:Q", format=",.4~g", title="at t_sum (TFLOP/s)"),
        alt.Tooltip("high_tflop_per_s:Q", format=",.4~g", title="at t_opt (TFLOP/s)"),
    ]
    span = steps.mark_rule(strokeWidth=3, opacity=0.45).encode(
        y=alt.Y("low_tflop_per_s:Q", title=title), y2=alt.Y2("high_tflop_per_s:Q")
    )
    tops = steps.mark_point(filled=True, size=90, opacity=1, cursor="pointer").encode(
        y=alt.Y("high_tflop_per_s:Q", title=title),
        shape=alt.Shape("phase:N", scale=shapes(PHASES)),
        tooltip=tip,
    )
    return layered([roofs, span, tops], HEIGHT)


def _texts(*names: str) -> list[alt.Tooltip]:
    """Columns of text as hovering shows them."""
    return [alt.Tooltip(f"{name}:N") for name in names]
