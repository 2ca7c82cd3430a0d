"""Whether stated 80% intervals hold 80% of rows that they were not made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dse.evidence.intervals import ANY, FEWEST, limits, ratios, wider

__all__ = ["ALL", "Coverage", "coverage"]

ALL: Final = "all"

Counts = NDArray[np.float64]
Kinds = tuple[tuple[str, str], ...]


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
    """Of each engine and metric with enough rows, and of each engine over all `metrics`; `rows` as
    for `intervals.fitted`, and `source`. Factors are those of the narrowest kind with enough rows.
    """
    found = []
    totals: dict[str, Counts] = {}
    for metric in metrics:
        known = ratios(rows, metric)
        for (engine,), part in known.group_by("engine", maintain_order=True):
            if part.height >= FEWEST:
                counts = _counts(str(engine), part, known)
                found.append(_of(str(engine), metric, counts))
                totals[str(engine)] = totals.get(str(engine), np.zeros((3, 2))) + counts
    return found + [_of(engine, ALL, counts) for engine, counts in totals.items()]


def _of(engine: str, metric: str, counts: Counts) -> Coverage:
    seen, pair_out, source_out = (_share(*each) for each in counts)
    return Coverage(
        engine=engine, metric=metric, n=int(counts[0, 1]),
        seen=seen, pair_out=pair_out, source_out=source_out,
    )  # fmt: skip


def _counts(engine: str, part: pl.DataFrame, known: pl.DataFrame) -> Counts:
    """(Rows inside, rows judged) of `part`: seen, by other pairs, by other sources."""
    found = np.zeros((3, 2))
    for (model_class,), kind in part.group_by("class", maintain_order=True):
        kinds = wider(engine, str(model_class))
        found[0] += _inside(kind, known, kinds)
        for place, column in ((1, "group"), (2, "source")):
            for (value,), out in kind.group_by(column, maintain_order=True):
                found[place] += _inside(out, known.filter(pl.col(column) != value), kinds)
    return found


def _inside(part: pl.DataFrame, known: pl.DataFrame, kinds: Kinds) -> Counts:
    """(Rows of `part` inside, rows judged); none are judged where every kind has too few rows."""
    for engine, model_class in kinds:
        by = known.filter(
            pl.lit(engine == ANY) | (pl.col("engine") == engine),
            pl.lit(model_class == ANY) | (pl.col("class") == model_class),
        )
        if by.height >= FEWEST:
            low, high = limits(by["ratio"].to_numpy(), by["group"].to_numpy())
            inside = part["ratio"].is_between(low, high).sum()
            return np.array([inside, part.height], float)
    return np.zeros(2)


def _share(inside: float, judged: float) -> float | None:
    return inside / judged if judged else None
