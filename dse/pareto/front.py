"""Non-dominated rows, their rank, and the volume they dominate (moocore does the arithmetic)."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from dse.pareto.objectives import Objective

__all__ = ["front", "hypervolume", "lowest", "non_dominated", "reference_point"]


def front(frame: pl.DataFrame, objectives: Sequence[Objective]) -> pl.DataFrame:
    """Return all rows of `frame` with `on_front` (Boolean) and `front_rank` (0 is the front).

    A row with a null, NaN or infinite objective is on no front and has no rank. Equal rows are all
    members. The order of rows does not matter.
    """
    import moocore

    finite = _finite(objectives)
    rows = frame.with_row_index("_row")
    judged = rows.filter(finite)
    ranks = pl.Series("front_rank", [], dtype=pl.Int32)
    if judged.height:
        found = moocore.pareto_rank(_matrix(judged, objectives), maximise=_maximise(objectives))
        ranks = pl.Series("front_rank", found, dtype=pl.Int32)
    ranked = judged.select("_row").with_columns(ranks)
    joined = rows.join(ranked, on="_row", how="left", maintain_order="left").drop("_row")
    return joined.with_columns(on_front=(pl.col("front_rank") == 0).fill_null(value=False))


def non_dominated(frame: pl.DataFrame, objectives: Sequence[Objective]) -> pl.DataFrame:
    """Return the rows of the front, in their order; equal rows stay, rows that are not finite go.

    Faster than `front`, which also ranks the others.
    """
    import moocore

    judged = frame.filter(_finite(objectives))
    if judged.is_empty():
        return judged
    keep = moocore.is_nondominated(
        _matrix(judged, objectives), maximise=_maximise(objectives), keep_weakly=True
    )
    return judged.filter(pl.Series(keep))


def lowest(costs: Any) -> Any:
    """Say of each row of a matrix of costs whether no other dominates it; equal rows all are.

    A row with a cost of −inf is always one: nothing is known to beat it.
    """
    import moocore
    import numpy as np

    unknown = np.isneginf(costs).any(axis=1)
    flags = unknown.copy()
    known = np.flatnonzero(~unknown)
    if len(known):
        flags[known] = moocore.is_nondominated(costs[known], keep_weakly=True)
    return flags


def reference_point(frame: pl.DataFrame, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """The worst finite value of each objective in `frame`, 10% beyond: a place to measure from."""
    return tuple(_worst(frame[each.column], each.direction) for each in objectives)


def hypervolume(
    frame: pl.DataFrame, objectives: Sequence[Objective], reference: Sequence[float]
) -> float:
    """The volume between the front of `frame` and `reference`, in the product of the units."""
    import moocore

    judged = frame.filter(_finite(objectives))
    if judged.is_empty():
        return 0.0
    points = _matrix(judged, objectives)
    volume = moocore.hypervolume(points, ref=list(reference), maximise=_maximise(objectives))
    return float(volume)


def _finite(objectives: Sequence[Objective]) -> pl.Expr:
    return pl.all_horizontal(
        pl.col(each.column).is_finite().fill_null(value=False) for each in objectives
    )


def _matrix(frame: pl.DataFrame, objectives: Sequence[Objective]) -> object:
    columns = [pl.col(each.column).cast(pl.Float64) for each in objectives]
    return frame.select(columns).to_numpy(order="c")


def _maximise(objectives: Sequence[Objective]) -> list[bool]:
    return [each.direction == "max" for each in objectives]


def _worst(values: pl.Series, direction: str) -> float:
    finite = values.cast(pl.Float64).drop_nulls()
    finite = finite.filter(finite.is_finite())
    if finite.is_empty():
        return 0.0
    low, high = float(finite.min()), float(finite.max())  # type: ignore[arg-type]
    margin = 0.1 * max(abs(low), abs(high))
    return low - margin if direction == "max" else high + margin
