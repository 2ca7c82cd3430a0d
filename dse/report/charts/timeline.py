"""A simulated run over time: batch size, queue and KV occupancy."""

import altair as alt

from dse.report.charts._base import named

__all__ = ["PANELS", "timeline"]

PANELS = {
    "n_seqs": "requests in the step",
    "n_waiting": "requests waiting",
    "kv_units": "KV in use",
}
WIDTH, HEIGHT = 860, 130
COLOURS = {"n_seqs": "#0072B2", "n_waiting": "#D55E00", "kv_units": "#009E73"}


def timeline() -> alt.VConcatChart:
    """Three panels over one time axis. Dataset `steps`: `time_s` and a column a panel."""
    panels = [
        alt.Chart(named("steps"), width=WIDTH, height=HEIGHT)
        .mark_area(interpolate="step-after", opacity=0.6, line=True, color=COLOURS[column])
        .encode(
            x=alt.X("time_s:Q", title="virtual time (s)"),
            y=alt.Y(f"{column}:Q", title=label),
            tooltip=[alt.Tooltip("time_s:Q", format=",.4~g"), alt.Tooltip(f"{column}:Q")],
        )
        for column, label in PANELS.items()
    ]
    chart: alt.VConcatChart = alt.vconcat(*panels).resolve_scale(x="shared")
    return chart
