"""Frames cut into chunks of even predicted cost."""

from collections.abc import Iterator

import polars as pl

COST = "predicted_s"
TARGET_S = 0.25
ROWS_OF_UNKNOWN_COST = 8


def cut(points: pl.DataFrame, *, target_s: float = TARGET_S) -> Iterator[pl.DataFrame]:
    """Yield `points` in order, each chunk of about `target_s` CPU seconds and at least one row.

    The column `predicted_s` gives a row's cost; without it chunks have `ROWS_OF_UNKNOWN_COST` rows.
    The cut depends on the points alone, never on the workers.
    """
    if points.is_empty():
        return
    if COST in points.columns:
        cost = pl.col(COST).fill_null(target_s).fill_nan(target_s).clip(lower_bound=0.0)
        label = ((cost.cum_sum() - cost / 2.0) / target_s).floor()
    else:
        label = pl.int_range(pl.len()) // ROWS_OF_UNKNOWN_COST
    labels = points.select(label.alias("label"))["label"]
    starts = [0, *(labels != labels.shift(1)).fill_null(value=False).arg_true().to_list()]
    ends = [*starts[1:], points.height]
    for start, end in zip(starts, ends, strict=True):
        yield points.slice(start, end - start)


def halves(points: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both halves of a chunk of at least two rows."""
    middle = points.height // 2
    return points.head(middle), points.slice(middle)
