"""The timeline of a simulated run as one file that needs no network."""

import json
from pathlib import Path

import polars as pl

from dse.report.charts.timeline import PANELS, timeline
from dse.report.vega import bundle, with_data

__all__ = ["thinned", "write_timeline"]

MAX_ROWS = 4000

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Simulated run</title>
<div id="chart"></div>
<script>{bundle}</script>
<script>vegaEmbed("#chart", {spec}, {{"actions": false}});</script>
"""


def write_timeline(steps: pl.DataFrame, file: Path) -> None:
    """Write the chart of `steps` (one row a step: `time_s`, `n_seqs`, `n_waiting`, `kv_units`)."""
    rows = thinned(steps).to_dicts()
    spec = with_data(timeline().to_dict(validate=False), {"steps": rows})
    text = json.dumps(spec).replace("</", "<\\/")
    file.write_text(
        PAGE.format(bundle=bundle().replace("</script", "<\\/script"), spec=text), "utf-8"
    )


def thinned(steps: pl.DataFrame) -> pl.DataFrame:
    """At most 4,000 rows over time; each keeps the largest values of those it stands for."""
    ordered = steps.sort("time_s").select("time_s", *PANELS)
    stride = -(-ordered.height // MAX_ROWS)
    if stride <= 1:
        return ordered
    groups = ordered.with_columns(group=pl.int_range(pl.len()) // stride).group_by(
        "group", maintain_order=True
    )
    return groups.agg(pl.col("time_s").first(), *(pl.col(name).max() for name in PANELS)).drop(
        "group"
    )
