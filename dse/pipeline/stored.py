"""The answer of a study from what its store holds, without a simulation.

Where the study's last run still stands its answer is read as it was written; else the search is
done again on the stored results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import polars as pl

from dse.base.errors import UserError
from dse.pipeline.recalled import recalled
from dse.pipeline.run import Means, Ran, run
from dse.run.pool import Work
from dse.store import Store
from dse.study import Study

__all__ = ["stored"]


def stored(study: Study, store: Store) -> Ran:
    """Answer `study` again from its results; `UserError` where one that the search asks for is
    missing, because the study, the catalog or the simulator has changed since.
    """
    recall = partial(recalled, study, store)
    return run(study, store=store, means=Means(pool=_refuse), record=False, recall=recall)


def _refuse(work: Work, chunks: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """A pool that gives nothing: whatever reaches it has no stored result."""
    for chunk in chunks:
        raise UserError(
            f"the store lacks the results of {chunk.height} points or more: the study, the catalog "
            "or the simulator has changed since it ran",
            "dse run it again",
        )
    yield from ()
