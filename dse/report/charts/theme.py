"""One visual language: colours that colour-blind readers tell apart, shapes, type, ink and grid."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any, ParamSpec

import altair as alt

from dse.report.layouts import FAMILIES

__all__ = [
    "COLOURS",
    "MOST_ABREAST",
    "SHAPES",
    "colours",
    "config",
    "shapes",
    "spec_of",
    "with_legends",
]

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C6BB1",
    "#A6761D",
    "#7F7F7F",
    "#B3B32E",
)
"""Okabe and Ito's palette (jfly.uni-koeln.de/color, 2008) without black and yellow, and four more.

Each keeps a contrast of 2.2 or more against white and against the dark page.
"""

P = ParamSpec("P")

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def spec_of(chart: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
    """The Vega-Lite spec of `chart(*args, **kwargs)`.

    Altair would hold each part of it against the schema as it is made, and the whole again: most of
    the time of a chart. That the charts keep the schema is tested.
    """
    with alt.utils.schemapi.debug_mode(False):
        spec: dict[str, Any] = chart(*args, **kwargs).to_dict(validate=False)
    return spec


def colours(names: Sequence[str]) -> alt.Scale:
    """The colour scale of `names`: the same name, the same colour in every chart of a page.

    A layout family has its place among all of them, since charts show different ones.
    """
    known = FAMILIES if set(names) <= set(FAMILIES) else names
    dealt = _dealt(known, COLOURS)
    colour = dict(zip(dealt.domain, dealt.range, strict=True))
    return alt.Scale(domain=list(names), range=[colour[name] for name in names])


def shapes(names: Sequence[str]) -> alt.Scale:
    """The shape scale of `names`."""
    return _dealt(names, SHAPES)


def _dealt(names: Sequence[str], values: Sequence[str]) -> alt.Scale:
    dealt = [values[i % len(values)] for i in range(len(names))]
    return alt.Scale(domain=list(names), range=dealt)


def config(*, ink: str, muted: str, grid: str, font: str = FONT) -> dict[str, Any]:
    """The Vega-Lite config of a page or of a picture; colours may be CSS variables on a page.

    A page fits the legends to the width of each chart; `with_legends` does so for pictures.
    """
    text = {"labelColor": muted, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": "transparent",
        "font": font,
        "view": {"stroke": None},
        "axis": {
            **text,
            "gridColor": grid,
            "domainColor": grid,
            "tickColor": grid,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "labelOverlap": "greedy",
            "labelSeparation": 8,
            "labelLimit": 0,
        },
        "legend": {
            **text,
            "titleFontWeight": 500,
            "symbolStrokeWidth": 2,
            "symbolBaseFillColor": muted,
            "symbolBaseStrokeColor": muted,
            "symbolOpacity": 1,
            "orient": "bottom",
            "labelLimit": 0,
            "layout": {"bottom": {"anchor": "start", "direction": "horizontal"}},
        },
        "header": {**text, "titleFontWeight": 500},
        "title": {"color": ink, "fontSize": 13, "fontWeight": 600, "anchor": "start"},
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": muted},
    }


def with_legends(look: Mapping[str, Any], spec: Mapping[str, Any], width: float) -> dict[str, Any]:
    """`look` with as many columns of names as let all legends of `spec` stand side by side, and as
    many ticks as have room along x.
    """
    lists = set(_domains(spec))

    def room(columns: int) -> float:
        widths = [min(columns, len(names)) * _width(names) for names in lists]
        return float(sum(widths))

    columns = next((n for n in range(MOST_COLUMNS, 0, -1) if room(n) <= width), 0)
    direction = "horizontal" if columns else "vertical"
    layout = {"bottom": {"anchor": "start", "direction": direction}}
    legend = {**look["legend"], "columns": columns or 1, "layout": layout}
    panels = min(int(spec["columns"]), MOST_ABREAST) if "facet" in spec else 1
    ticks = {"tickCount": ceil(width / panels / PIXELS_A_TICK)}
    return {**look, "legend": legend, "axisXQuantitative": ticks}


MOST_COLUMNS = 6
MOST_ABREAST = 3
"""Panels of a facet side by side in a picture."""
PIXELS_A_TICK = 80
"""Room that a horizontal axis gives to a tick and its label."""


def _width(names: Sequence[str]) -> float:
    """Pixels of the longest name at 12 px, its symbol and the gap to the next."""
    return 40.0 + 7.0 * max(map(len, names))


def _domains(node: Any) -> Iterator[tuple[str, ...]]:
    """Every list of names that a scale of `node` stands for."""
    if isinstance(node, Mapping):
        domain = node.get("domain")
        if isinstance(domain, list) and domain and isinstance(domain[0], str):
            yield tuple(domain)
        for inner in node.values():
            yield from _domains(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _domains(inner)
