"""Who beats whom, within a relative tolerance: matrices of logarithms in which less is better."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from dse.pareto import Objective

Matrix: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
Flags: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
Places: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
_BLOCK = 4096
# What two orders of the same float operations may differ by, relative.
ROUNDING = 1e-9


def costs(frame: pl.DataFrame, objectives: Sequence[Objective]) -> Matrix:
    """One row a point, one column an objective: its logarithm, negated where more is better.

    So a relative tolerance is a shift. What is null or NaN counts as the best there could be:
    nothing beats an unknown bound.
    """
    columns = []
    for objective in objectives:
        values = frame[objective.column].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.maximum(values, 0.0))
        cost = -logs if objective.direction == "max" else logs
        columns.append(np.where(np.isnan(values), -np.inf, cost))
    return np.column_stack(columns) if columns else np.empty((frame.height, 0))


def beaten_by(members: Matrix, others: Matrix, tolerance: float) -> Places:
    """For each row of `others` the first of `members` that beats it within `tolerance`, or −1.

    To beat is to be no worse in any objective after the tolerance, and at tolerance 0 better in
    one by more than `ROUNDING`: an equal row may stand on the front as well, and a bound may lie
    that far beyond its result.
    """
    found = np.full(len(others), -1, dtype=np.int64)
    if not len(members):
        return found
    slack = np.log1p(tolerance)
    for start in range(0, len(others), _BLOCK):
        block = others[start : start + _BLOCK]
        beats = _each(np.logical_and, np.less_equal, members, block + slack)
        if tolerance == 0.0:
            beats &= _each(np.logical_or, np.less, members, block - ROUNDING)
        hit = beats.any(axis=1)
        found[start : start + _BLOCK] = np.where(hit, beats.argmax(axis=1), -1)
    return found


def promise(members: Matrix, others: Matrix) -> Matrix:
    """For each row of `others` the logarithm by which it may beat every member (below 0: cannot).

    Without members the sum of its costs ranks it.
    """
    if not len(members):
        finite = np.where(np.isfinite(others), others, 0.0)
        return np.where(np.isneginf(others).any(axis=1), np.inf, -finite.sum(axis=1))
    found = np.empty(len(others))
    for start in range(0, len(others), _BLOCK):
        block = others[start : start + _BLOCK]
        most = _each(np.maximum, np.subtract, members, block)
        found[start : start + _BLOCK] = most.min(axis=1)
    return found


def _each(joins: np.ufunc, compares: np.ufunc, members: Matrix, others: Matrix) -> Any:
    """Every row of `others` (a row) compared with every member (a column), objective by objective,
    which is several times faster than over a third axis.
    """
    found = compares(members[None, :, 0], others[:, 0, None])
    for i in range(1, members.shape[1]):
        joins(found, compares(members[None, :, i], others[:, i, None]), out=found)
    return found


def gap(members: Matrix, others: Matrix) -> float:
    """The most by which a row of `others` may beat every member, relative; 0 if none can."""
    if not len(others):
        return 0.0
    if not len(members):
        return float("inf")
    return float(np.expm1(max(promise(members, others).max(), 0.0)))
