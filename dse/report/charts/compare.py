"""Two sides of a comparison in one plane: where each point was, and where it is."""

import altair as alt

from dse.report.charts._base import layered, named
from dse.report.charts.theme import colours
from dse.report.quantities import Quantity

__all__ = ["moves"]

HEIGHT = 320


def moves(x: Quantity, y: Quantity, names: tuple[str, str]) -> alt.LayerChart:
    """A line from a to b a point. Dataset `moves`: `who`, `x_a`, `y_a`, `x_b`, `y_b`, shown units.

    Dataset `places` has a row a side: `side`, `x`, `y`.
    """
    log = alt.Scale(type="log", nice=False, padding=14)
    lines = (
        alt.Chart(named("moves"))
        .mark_rule(strokeWidth=1, opacity=0.5, color="gray")
        .encode(
            x=alt.X("x_a:Q", scale=log, title=x.label),
            y=alt.Y("y_a:Q", scale=log, title=y.label),
            x2="x_b:Q",
            y2="y_b:Q",
        )
    )
    dots = (
        alt.Chart(named("places"))
        .mark_point(filled=True, size=46, opacity=0.9)
        .encode(
            x=alt.X("x:Q", scale=log, title=x.label),
            y=alt.Y("y:Q", scale=log, title=y.label),
            color=alt.Color("side:N", scale=colours(names), title=None),
            tooltip=[
                "side:N",
                "who:N",
                alt.Tooltip("x:Q", title=x.label, format=",.4~g"),
                alt.Tooltip("y:Q", title=y.label, format=",.4~g"),
            ],
        )
    )
    return layered([lines, dots], HEIGHT)
