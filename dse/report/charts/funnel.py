"""The funnel: how many points each step left or took away."""

import altair as alt

from dse.report.charts._base import layered, named

__all__ = ["funnel"]

STEPS = ("left", "illegal", "wall", "screen", "bound", "failed")
_COLOURS = ("#0072B2", "#7F7F7F", "#D55E00", "#CC79A7", "#009E73", "#A6761D")
_ROW = 24


def funnel(n_steps: int) -> alt.LayerChart:
    """One bar a step on a logarithmic axis. Dataset `funnel`: `step`, `kind`, `n`, `text`."""
    base = alt.Chart(named("funnel")).encode(
        y=alt.Y("step:N", sort=None, axis=alt.Axis(title=None, domain=False)),
        tooltip=[alt.Tooltip("step:N"), alt.Tooltip("n:Q", format=",", title="points")],
    )
    x = alt.X(
        "n:Q",
        scale=alt.Scale(type="symlog", constant=1),
        axis=alt.Axis(title=None, labels=False, grid=False, ticks=False),
    )
    kinds = alt.Scale(domain=list(STEPS), range=list(_COLOURS))
    bars = base.mark_bar(cornerRadiusEnd=2, opacity=0.85, height=14).encode(
        x=x, color=alt.Color("kind:N", scale=kinds, legend=None)
    )
    words = base.mark_text(align="left", dx=5).encode(x=x, text=alt.Text("text:N"))
    return layered([bars, words], _ROW * n_steps)
