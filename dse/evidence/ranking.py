"""Whether layouts come out in the measured order: same GPUs, same model, same load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import polars as pl

__all__ = ["NOISE", "SAME", "Ranking", "Reversed", "ranking"]

SAME: Final = ("engine", "version", "gpu", "model", "precision", "isl/osl", "concurrency")
# Pairs nearer than this are ties: of 300 repeats in the serving sample four in five differ by less
# than 2%, and one in ten by more than 6%.
NOISE: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Reversed:
    """A pair in the wrong order: under the load `where`, layout `slower` takes `measured` (above 1)
    times as long as `faster`, and is predicted to take `predicted` times as long.
    """

    where: str
    faster: str
    slower: str
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """`tau` is Kendall's over all pairs of `n_groups` groups that differ by more than `NOISE` as
    measured, and whose repeats do not overlap; `best` the share of groups whose measured best
    layout is predicted best or within `NOISE` of it. `reversed` are the pairs in the wrong order.
    """

    n_groups: int
    n_pairs: int
    tau: float
    best: float
    reversed: tuple[Reversed, ...] = ()


def ranking(frame: pl.DataFrame, by: Sequence[str] = SAME, metric: str = "tpot_s") -> Ranking:
    """Compare the order of rows that share `by` and their number of GPUs but not their layout.

    `frame` has `layout` (as `tp4 dp1 ep4`), `measured_*` and `pred_*` of `metric`; rows of one
    layout are averaged.
    """
    degrees = pl.col("layout").str.extract_groups(r"tp(\d+) dp(\d+)")
    gpus = degrees.struct[0].cast(pl.Int64) * degrees.struct[1].cast(pl.Int64)
    rows = frame.with_columns(n_gpus=gpus).group_by(*by, "n_gpus", "layout")
    means = rows.agg(
        seen=pl.col(f"measured_{metric}").mean(),
        told=pl.col(f"pred_{metric}").mean(),
        least=pl.col(f"measured_{metric}").min(),
        most=pl.col(f"measured_{metric}").max(),
    ).drop_nulls()
    pairs = groups = right = 0
    wrong: list[Reversed] = []
    for key, part in means.group_by(*by, "n_gpus"):
        points = list(part.select("seen", "told", "least", "most", "layout").iter_rows())
        apart = [(a, b) for a, b in combinations(points, 2) if _apart(a, b)]
        if not apart:
            continue
        groups += 1
        pairs += len(apart)
        where = ", ".join(str(value) for value in key[:-1])
        wrong += [_reversed(where, a, b) for a, b in apart if (a[0] < b[0]) != (a[1] < b[1])]
        best = min(points)
        right += best[1] <= (1.0 + NOISE) * min(point[1] for point in points)
    return Ranking(
        n_groups=groups,
        n_pairs=pairs,
        tau=1.0 - 2.0 * len(wrong) / pairs if pairs else float("nan"),
        best=right / groups if groups else float("nan"),
        reversed=tuple(sorted(wrong, key=lambda each: each.where)),
    )


def _reversed(where: str, a: tuple[Any, ...], b: tuple[Any, ...]) -> Reversed:
    fast, slow = sorted((a, b))
    return Reversed(
        where=where, faster=fast[4], slower=slow[4],
        measured=slow[0] / fast[0], predicted=slow[1] / fast[1],
    )  # fmt: skip


def _apart(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two (mean, predicted, least, most, layout) were measured to differ."""
    overlap = a[2] <= b[3] and b[2] <= a[3]
    return abs(a[0] / b[0] - 1.0) > NOISE and not overlap
