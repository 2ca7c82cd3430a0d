"""Optimistic curves as corners: a point is out of the race once each of its corners is beaten."""

from dataclasses import dataclass

import numpy as np

from dse.search.dominance import Flags, Matrix, Places, beaten_by, promise


@dataclass(slots=True)
class Corners:
    """The corners that nobody has beaten: `costs`, a row each, and `owner`, whose corner it is.

    Corners of one owner stand together, owners in rising order. `value` is what a corner promises
    over the members met so far (see `promise`); `is_new` those that have met none.
    """

    costs: Matrix
    owner: Places
    value: Matrix
    is_new: Flags

    @classmethod
    def none(cls, width: int) -> "Corners":
        """No curve yet."""
        places, flags = np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
        return cls(np.empty((0, width)), places, np.empty(0), flags)

    def add(self, owners: Places, boxes: Matrix, costs: Matrix) -> None:
        """Take in curves of equal numbers of corners, owner by owner (rising), in their boxes."""
        if not len(owners):
            return
        size = len(costs) // len(owners)
        whose, costs = np.repeat(owners, size), np.maximum(costs, np.repeat(boxes, size, axis=0))
        is_last = not len(self.owner) or bool(owners[0] > self.owner[-1])
        self.owner, self.costs = np.append(self.owner, whose), np.vstack([self.costs, costs])
        self.value = np.append(self.value, np.full(len(whose), np.inf))
        self.is_new = np.append(self.is_new, np.ones(len(whose), dtype=bool))
        if not is_last:
            order = np.argsort(self.owner, kind="stable")
            self.owner, self.costs = self.owner[order], self.costs[order]
            self.value, self.is_new = self.value[order], self.is_new[order]

    def raise_to(self, owners: Places, boxes: Matrix) -> None:
        """Let no corner of these owners (rising) promise more than its box."""
        if not len(owners) or not len(self.owner):
            return
        row = np.minimum(np.searchsorted(owners, self.owner), len(owners) - 1)
        theirs = owners[row] == self.owner
        self.costs[theirs] = np.maximum(self.costs[theirs], boxes[row[theirs]])
        self.is_new |= theirs
        self.value[theirs] = np.inf

    def beat(self, members: Matrix, fresh: Matrix, tolerance: float) -> dict[int, int]:
        """Drop the corners that some member beats; returns the owners left without any, and the
        member that beat the first of their last corners. `fresh` are members that joined since.
        """
        self._meet(members, fresh)
        near = np.flatnonzero((self.value <= np.log1p(tolerance)) & bool(len(members)))
        by = beaten_by(members, self.costs[near], tolerance)
        gone = np.zeros(len(self.owner), dtype=bool)
        gone[near] = by >= 0
        lost = np.setdiff1d(self.owner[gone], self.owner[~gone])
        losers = self.owner[near][by >= 0]
        first = np.searchsorted(losers, lost)
        found = dict(zip(lost.tolist(), by[by >= 0][first].tolist(), strict=True))
        self._take(~gone)
        return found

    def best(self) -> tuple[Places, Matrix]:
        """Each owner and the corner by which it may beat the members most."""
        if not len(self.owner):
            return self.owner, self.costs
        starts = np.flatnonzero(np.append(True, np.diff(self.owner) > 0))
        most = np.maximum.reduceat(self.value, starts)
        sizes = np.diff(np.append(starts, len(self.owner)))
        tops = np.flatnonzero(self.value == np.repeat(most, sizes))
        owners, first = np.unique(self.owner[tops], return_index=True)
        return owners, self.costs[tops[first]]

    def keep(self, owners: Places) -> None:
        """Forget the corners of all but these owners (rising)."""
        if len(owners) and len(self.owner):
            row = np.minimum(np.searchsorted(owners, self.owner), len(owners) - 1)
            self._take(owners[row] == self.owner)
        else:
            self._take(np.zeros(len(self.owner), dtype=bool))

    def _meet(self, members: Matrix, fresh: Matrix) -> None:
        if len(members):
            new, old = np.flatnonzero(self.is_new), np.flatnonzero(~self.is_new)
            self.value[new] = promise(members, self.costs[new])
            if len(fresh):
                found = promise(fresh, self.costs[old])
                self.value[old] = np.minimum(self.value[old], found)
            self.is_new[:] = False
        else:
            # What nobody has ranked yet.
            new = np.flatnonzero(np.isposinf(self.value))
            self.value[new] = promise(members, self.costs[new])

    def _take(self, kept: Flags) -> None:
        if kept.all():
            return
        self.costs, self.owner = self.costs[kept], self.owner[kept]
        self.value, self.is_new = self.value[kept], self.is_new[kept]
