"""The timeline of a run: three panels, thinned by maxima, one file without a network."""

from pathlib import Path

import polars as pl

from dse.report.charts.timeline import PANELS, timeline
from dse.report.timeline import MAX_ROWS, thinned, write_timeline


def steps(n: int) -> pl.DataFrame:
    return pl.DataFrame(
        {"time_s": range(n), "n_seqs": [i % 7 for i in range(n)], "n_waiting": 0, "kv_units": 1}
    )


def test_three_panels_share_time() -> None:
    spec = timeline().to_dict(validate=False)
    assert [panel["encoding"]["y"]["field"] for panel in spec["vconcat"]] == list(PANELS)


def test_thinning_keeps_maxima() -> None:
    kept = thinned(steps(50_000))
    assert kept.height <= MAX_ROWS
    assert set(kept["n_seqs"][:-1]) == {6}
    assert thinned(steps(10)).height == 10


def test_the_file_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    write_timeline(steps(20), file)
    text = file.read_text("utf-8")
    assert "vegaEmbed" in text
    assert "<script src" not in text
