"""Who is likely on the front: guesses that decide what is simulated first, and nothing else."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from dse.pareto import lowest
from dse.search.dominance import Matrix, Places, beaten_by, costs
from dse.search.gather import optimistic
from dse.search.question import Bound, Question

_PART = 8192


@dataclass(slots=True, kw_only=True)
class Guessed:
    """Likely costs of the survivors at `places` (rising) that are likely feasible, and by how much
    results missed them so far.
    """

    places: Places
    costs: Matrix
    missed: Matrix

    @classmethod
    def of(cls, survivors: pl.DataFrame, places: Places, question: Question) -> "Guessed | None":
        """The guesses of the first bound that has any, of what it guesses to be feasible."""
        bound = next((each for each in question.bounds if each.guess is not None), None)
        if bound is None or bound.guess is None:
            return None
        found, whose = [], []
        for start in range(0, len(places), _PART):
            part = places[start : start + _PART]
            guess = Bound(rung=bound.rung, of=bound.guess)
            rows = optimistic(guess, survivors[part], question)
            values = costs(rows, question.objectives)
            likely = ~rows["hopeless"].fill_null(value=True).to_numpy()
            likely &= np.isfinite(values).all(axis=1)
            found.append(values[likely])
            whose.append(part[likely])
        width = len(question.objectives)
        return cls(
            places=np.concatenate(whose), costs=np.vstack(found), missed=np.empty((0, width))
        )

    def learn(self, places: Places, values: Matrix) -> None:
        """Take in the costs of simulated feasible survivors, and forget their guesses."""
        row = np.minimum(np.searchsorted(self.places, places), max(len(self.places) - 1, 0))
        known = self.places[row] == places if len(self.places) else np.zeros(len(row), dtype=bool)
        self.missed = np.vstack([self.missed, (values - self.costs[row])[known]])

    def next(self, undecided: Places, members: Matrix, question: Question) -> Places:
        """The rows of `undecided` (rising) to simulate: a round of those that, as results missed
        guesses so far, no member beats and no other; none where guesses have nothing to add.
        """
        rows = np.searchsorted(undecided, self.places)
        here = undecided[np.minimum(rows, len(undecided) - 1)] == self.places
        self.places, self.costs = self.places[here], self.costs[here]
        missed = np.median(self.missed, axis=0) if len(self.missed) else 0.0
        expected = self.costs + missed
        open_ = np.flatnonzero(beaten_by(members, expected, question.tolerance) < 0)
        leads = open_[lowest(expected[open_])] if len(open_) else open_
        chosen = leads[spread(expected[leads], expected[leads], question)] if len(leads) else leads
        found: Places = np.searchsorted(undecided, self.places[chosen])
        return found


def spread(vectors: Matrix, expected: Matrix, question: Question) -> Places:
    """The places of at most a round of rows such that, where results are as `expected`, each of the
    others would be dropped by one of them by its vector: what drops most first, ties by row.
    """
    slack = np.log1p(question.tolerance)
    covers = (expected[:, None, :] <= vectors[None, :, :] + slack).all(axis=2)
    covers &= np.isfinite(vectors).all(axis=1)
    np.fill_diagonal(covers, val=True)
    chosen: list[int] = []
    open_ = np.ones(len(vectors), dtype=bool)
    while open_.any() and len(chosen) < question.round_size:
        counts = (covers & open_).sum(axis=1)
        counts[~open_] = 0
        best = int(counts.argmax())
        chosen.append(best)
        open_ &= ~covers[best]
    return np.array(chosen, dtype=np.int64)
