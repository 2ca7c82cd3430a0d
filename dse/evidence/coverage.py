"""Whether stated 80% intervals hold 80% of rows that they were not made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dse.evidence.intervals import FEWEST, limits, ratios

__all__ = ["Coverage", "coverage"]

Counts = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Shares of `n` rows of an engine inside their intervals: made from all rows (`seen`), without
    the row's GPU and model (`pair_out`), without the row's source (`source_out`); None where what
    is left is too little to state an interval.
    """

    engine: str
    metric: str
    n: int
    seen: float | None
    pair_out: float | None
    source_out: float | None


def coverage(rows: pl.DataFrame, metrics: Sequence[str]) -> list[Coverage]:
    """Of each engine and metric with enough rows; `rows` as for `intervals.fitted`, and `source`.

    Factors are those of the engine and model class; where leaving rows out leaves fewer than
    `FEWEST`, those of the model class on any engine.
    """
    found = []
    for metric in metrics:
        known = ratios(rows, metric)
        for (engine,), part in known.group_by("engine", maintain_order=True):
            if part.height >= FEWEST:
                found.append(_of(str(engine), metric, part, known))
    return found


def _of(engine: str, metric: str, part: pl.DataFrame, known: pl.DataFrame) -> Coverage:
    counts = {name: np.zeros(2) for name in ("seen", "pair_out", "source_out")}
    for (model_class,), kind in part.group_by("class", maintain_order=True):
        same = known.filter(pl.col("class") == model_class)
        counts["seen"] += _inside(kind, kind, same)
        for name, column in (("pair_out", "group"), ("source_out", "source")):
            for (value,), out in kind.group_by(column, maintain_order=True):
                kept = pl.col(column) != value
                counts[name] += _inside(out, kind.filter(kept), same.filter(kept))
    shares = {name: _share(*count) for name, count in counts.items()}
    return Coverage(engine=engine, metric=metric, n=part.height, **shares)


def _inside(part: pl.DataFrame, own: pl.DataFrame, others: pl.DataFrame) -> Counts:
    """(Rows of `part` inside, rows judged) by the factors of `own`, by those of `others` where it
    has too few; none are judged where both have.
    """
    by = own if own.height >= FEWEST else others
    if by.height < FEWEST:
        return np.zeros(2)
    low, high = limits(by["ratio"].to_numpy(), by["group"].to_numpy())
    ratio = part["ratio"].to_numpy()
    return np.array([np.count_nonzero((ratio >= low) & (ratio <= high)), part.height], float)


def _share(inside: float, judged: float) -> float | None:
    return inside / judged if judged else None
