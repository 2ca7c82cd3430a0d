"""A search for each value of a column, so that what loses overall is still known at its best."""

from collections import Counter
from collections.abc import Callable, Sequence

import polars as pl

from dse.search.gather import best_first, judged
from dse.search.question import Answer, Certificate, Evaluate, Question

__all__ = ["search_each"]

Search = Callable[[pl.DataFrame, Evaluate, Question], Answer]
OWN_FRONT = "on_own_front"


def search_each(
    search: Search, survivors: pl.DataFrame, evaluate: Evaluate, question: Question, by: str | None
) -> Answer:
    """The answer over all survivors, with the front of every value of column `by` in its frame.

    A point is only dropped for one of its own value, so each value's front is proved like the
    whole one's; `on_own_front` marks its members. Without `by`, or with one value, it is `search`.
    """
    if by is None or by not in survivors.columns or survivors[by].n_unique() < 2:
        return search(survivors, evaluate, question)
    groups = survivors.partition_by(by, maintain_order=True)
    found = [search(group, evaluate, question) for group in groups]
    frames = [
        each.frame.rename({"on_front": OWN_FRONT}).drop("front_rank", "is_tie") for each in found
    ]
    order = survivors.select("point")
    rows = pl.concat(frames, how="diagonal_relaxed")
    frame = judged(
        order.join(rows, on="point", how="inner", maintain_order="left"), question.objectives
    )
    return Answer(
        frame=frame,
        front=best_first(frame, question.objectives),
        certificate=_joined([each.certificate for each in found]),
        proofs=pl.concat([each.proofs for each in found]),
        # Each search measures from a reference of its own: the volumes do not add up.
        history=found[0].history.clear(),
    )


def _joined(parts: Sequence[Certificate]) -> Certificate:
    """One certificate: the sums, and of each tightness the worst."""
    dropped: Counter[str] = Counter()
    gaps: dict[str, tuple[float, float]] = {}
    for part in parts:
        dropped.update(part.n_dropped)
        for name, gap in part.tightness.items():
            known = gaps.get(name, (0.0, 0.0))
            gaps[name] = (max(known[0], gap[0]), max(known[1], gap[1]))
    return Certificate(
        method=parts[0].method,
        tolerance=parts[0].tolerance,
        n_survivors=sum(part.n_survivors for part in parts),
        n_simulated=sum(part.n_simulated for part in parts),
        n_dropped=dict(dropped),
        n_failed=sum(part.n_failed for part in parts),
        rounds=tuple(each for part in parts for each in part.rounds),
        n_left=sum(part.n_left for part in parts),
        gap=max(part.gap for part in parts),
        violations=tuple(each for part in parts for each in part.violations),
        tightness=gaps,
    )
