"""Charts of the procurement view: GPUs side by side by price, interactivity and load."""

from collections.abc import Sequence
from typing import Any

import altair as alt

from dse.report.charts._base import dashes, layered, named, tooltips
from dse.report.charts.theme import colours
from dse.report.quantities import quantity

__all__ = ["fleet", "interactivity"]

HEIGHT = 260


def interactivity(
    column: str, names: Sequence[str], precisions: Sequence[str] = ()
) -> alt.LayerChart:
    """Best output per GPU against the tokens/s a user sees at least. Dataset `interactivity`."""
    y = quantity("output_tok_per_s_per_gpu")
    at: dict[str, Any] = {
        "x": alt.X(
            "tok_per_s_per_user:Q",
            title="interactivity at least (tok/s/user)",
            scale=alt.Scale(type="log", nice=False, padding=10),
        ),
        "y": alt.Y(f"{y.column}:Q", title=f"{y.label} ↑ better"),
        "color": _colour(column, names),
    }
    base = alt.Chart(named("interactivity")).encode(**at)
    tip = [
        *tooltips([column, "precision", "layout"]),
        alt.Tooltip(f"{y.column}:Q", title=y.label, format=",.4~g"),
        alt.Tooltip("usd_per_mtok_output:Q", title="USD/Mtok output", format=",.4~g"),
    ]
    line = base.mark_line(strokeWidth=1.6, interpolate="step-before").encode(**dashes(precisions))
    dots = base.mark_point(filled=True, size=60, opacity=1, cursor="pointer")
    return layered([line, dots.encode(tooltip=tip)], HEIGHT)


def fleet(column: str, names: Sequence[str], precisions: Sequence[str] = ()) -> alt.LayerChart:
    """GPUs needed against the load. Dataset `fleet`."""
    log = alt.Scale(type="log", nice=False, padding=10)
    base = alt.Chart(named("fleet")).encode(
        x=alt.X("target_req_per_s:Q", title="load (req/s)", scale=log),
        y=alt.Y("gpus_needed:Q", title="GPUs needed ↓ better", scale=log),
        color=_colour(column, names),
        tooltip=[*tooltips([column, "precision"]), "target_req_per_s:Q", "gpus_needed:Q"],
    )
    dots = base.mark_point(filled=True, size=60, opacity=1)
    line = base.mark_line(strokeWidth=1.6).encode(**dashes(precisions))
    return layered([line, dots], HEIGHT)


def _colour(column: str, names: Sequence[str]) -> alt.Color:
    title = quantity(column).title
    return alt.Color(f"{column}:N", scale=colours(names), title=title)
