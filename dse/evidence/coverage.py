"""Whether stated 80% intervals hold 80% of rows that they were not made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from dse.evidence.intervals import FEWEST, Groups, Ratios, limits, ratios

__all__ = ["Coverage", "coverage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Shares of `n` rows of an engine inside their intervals: made from all rows (`seen`), without
    the row's GPU and model (`pair_out`), without the row's source (`source_out`).
    """

    engine: str
    metric: str
    n: int
    seen: float
    pair_out: float
    source_out: float


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
    shares = {"seen": 0, "pair_out": 0, "source_out": 0}
    for (model_class,), kind in part.group_by("class", maintain_order=True):
        same = known.filter(pl.col("class") == model_class)
        any_ratio, any_group = _arrays(same)
        own = kind if kind.height >= FEWEST else same
        shares["seen"] += _inside(kind, limits(*_arrays(own)))
        for name, column in (("pair_out", "group"), ("source_out", "source")):
            for (value,), out in kind.group_by(column, maintain_order=True):
                rest = kind.filter(pl.col(column) != value)
                if rest.height >= FEWEST:
                    shares[name] += _inside(out, limits(*_arrays(rest)))
                    continue
                kept = (same[column] != value).to_numpy()
                shares[name] += _inside(out, limits(any_ratio[kept], any_group[kept]))
    n = part.height
    return Coverage(
        engine=engine,
        metric=metric,
        n=n,
        seen=shares["seen"] / n,
        pair_out=shares["pair_out"] / n,
        source_out=shares["source_out"] / n,
    )


def _arrays(part: pl.DataFrame) -> tuple[Ratios, Groups]:
    return part["ratio"].to_numpy(), part["group"].to_numpy()


def _inside(part: pl.DataFrame, factors: tuple[float, float]) -> int:
    ratio = part["ratio"].to_numpy()
    return int(np.count_nonzero((ratio >= factors[0]) & (ratio <= factors[1])))
