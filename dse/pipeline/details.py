"""What the report tells of the members of the front beyond their row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from dse.pipeline.judged import Judged
from dse.study import Study

__all__ = ["details"]

MOST = 8


def details(study: Study, judged: Judged, front: pl.DataFrame) -> dict[str, Mapping[str, Any]]:
    """Per `point_id` of the first members: `breakdown`, seconds of a step by kernel family."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in front.head(MOST).iter_rows(named=True):
        text = row.get("step_breakdown")
        if isinstance(text, str):
            seconds = json.loads(text)
            found[row["point_id"]] = {
                "breakdown": [{"family": name, "seconds": s} for name, s in seconds.items()]
            }
    return found
