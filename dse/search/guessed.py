"""Who is likely on the front: guesses that decide what is simulated first, and nothing else."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dse.pareto import lowest
from dse.search.dominance import Flags, Matrix, Places, beaten_by, costs
from dse.search.gather import optimistic
from dse.search.question import Bound, Question

# Guesses are alike within this distance of their logarithms, and one result there weighs so many
# times what all others say.
_ALIKE, _WEIGHT = 0.1, 4.0
# While a budget is left results are expected to be better by so many deviations, until somebody has
# a chance.
_LUCK = (0.0, 1.0, 2.0)
# Least strained survivors, of the best of which a budget is spent in the end.
_NEAREST = 64


@dataclass(slots=True, kw_only=True)
class Guessed:
    """Likely costs of the survivors at `places` (rising) and the `strain` on their SLO; and of
    those simulated by how much results `missed` the costs that were likely `there`, the strain
    where they were `tried` and whether they were `able` to keep the SLO.
    """

    places: Places
    costs: Matrix
    strain: Matrix
    missed: Matrix
    there: Matrix
    tried: Matrix
    able: Flags

    @classmethod
    def none(cls, question: Question) -> "Guessed":
        """No guess yet."""
        width = len(question.objectives)
        return cls(
            places=np.empty(0, dtype=np.int64),
            costs=np.empty((0, width)),
            strain=np.empty(0),
            missed=np.empty((0, width)),
            there=np.empty((0, width)),
            tried=np.empty(0),
            able=np.empty(0, dtype=bool),
        )

    def add(self, survivors: pl.DataFrame, places: Places, question: Question) -> None:
        """Take in the guesses of the first bound that has any, for `places` beyond those known."""
        bound = next((each for each in question.bounds if each.guess is not None), None)
        if bound is None or bound.guess is None:
            return
        points = survivors[places]
        guess = bound.guess(points)
        values = costs(_objectives(guess, points, question), question.objectives)
        strain = guess["strain"].fill_null(np.inf).to_numpy()
        known = np.isfinite(values).all(axis=1) & np.isfinite(strain)
        self.places = np.append(self.places, places[known])
        self.costs = np.vstack([self.costs, values[known]])
        self.strain = np.append(self.strain, strain[known])

    def learn(self, places: Places, values: Matrix, able: Flags) -> None:
        """Take in simulated survivors: their costs, and whether they are feasible."""
        if not len(self.places):
            return
        row = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        known = self.places[row] == places
        self.tried = np.append(self.tried, self.strain[row[known]])
        self.able = np.append(self.able, able[known])
        good = known & able
        self.missed = np.vstack([self.missed, values[good] - self.costs[row[good]]])
        self.there = np.vstack([self.there, self.costs[row[good]]])

    def next(self, undecided: Places, members: Matrix, question: Question) -> Places:
        """The rows of `undecided` (rising) to simulate: a round of those that, as results missed
        guesses so far, no member beats and no other; none where guesses have nothing to add.
        """
        rows = np.searchsorted(undecided, self.places)
        here = undecided[np.minimum(rows, len(undecided) - 1)] == self.places
        self.places, self.costs, self.strain = (
            each[here] for each in (self.places, self.costs, self.strain)
        )
        expected, open_ = self._open(members, question)
        leads = open_[lowest(expected[open_])] if len(open_) else open_
        chosen = leads[spread(expected[leads], expected[leads], question)] if len(leads) else leads
        found: Places = np.searchsorted(undecided, self.places[chosen])
        return found

    def _open(self, members: Matrix, question: Question) -> tuple[Matrix, Places]:
        """The costs expected, and the rows by which a front may grow."""
        limit, hopeful = self._limit(), np.empty(0, dtype=bool)
        mean, deviation = self._misses()
        for luck in _LUCK[:1] if question.budget is None else _LUCK:
            expected = self.costs + mean - luck * deviation
            hopeful = beaten_by(members, expected, question.tolerance) < 0
            open_ = np.flatnonzero(hopeful & (self.strain <= limit))
            if len(open_):
                return expected, open_
        if question.budget is not None:
            open_ = np.flatnonzero(hopeful)
            open_ = np.sort(open_[np.argsort(self.strain[open_], kind="stable")[:_NEAREST]])
        return expected, open_

    def _misses(self) -> tuple[Matrix, Matrix]:
        """By how much results will miss the costs, and the deviation of that: what was seen where
        costs are alike, and of all the less, the more there is of it.
        """
        if not len(self.missed):
            return np.zeros_like(self.costs), np.zeros_like(self.costs)
        usual = np.median(self.missed, axis=0)
        apart = ((self.costs[:, None, :] - self.there[None, :, :]) ** 2).sum(axis=2)
        weight = _WEIGHT * np.exp(-apart / (2.0 * _ALIKE**2))
        whole = 1.0 + weight.sum(axis=1, keepdims=True)
        mean = usual + weight @ (self.missed - usual) / whole
        return mean, np.sqrt(((self.missed - usual) ** 2).mean(axis=0) / whole)

    def _limit(self) -> float:
        """The strain that tells best who kept the SLO so far; of equals the largest."""
        limits = np.append(1.0, np.where(self.able, self.tried, np.nextafter(self.tried, -np.inf)))
        over = self.tried[None, :] > limits[:, None]
        wrong = (over == self.able[None, :]).sum(axis=1)
        return float(limits[wrong == wrong.min()].max())


def _objectives(guess: pl.DataFrame, points: pl.DataFrame, question: Question) -> pl.DataFrame:
    asked = replace(question, hopeless=None)
    return optimistic(Bound(rung="guess", of=lambda _: guess.drop("strain")), points, asked)


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
