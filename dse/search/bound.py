"""The Pareto front with a certificate: best-first by optimistic vectors, dropping what cannot win.

Every survivor has an optimistic vector, which no simulation of it can beat. A survivor whose vector
a simulated, feasible point beats (within the tolerance) is dropped, with that point as its proof.
What is simulated next are vectors that no other undecided one dominates; when none is left the
front is proved. Branch and bound (Land & Doig 1960) with a vector for a bound. Of many survivors
those that are likely on the front come first, as results drop more than the best of bounds.
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from dse.pareto import lowest
from dse.search.contenders import contenders
from dse.search.corners import Corners
from dse.search.dominance import Flags, Matrix, Places, beaten_by, costs, gap, promise
from dse.search.gather import corners, optimistic
from dse.search.guessed import Guessed, spread
from dse.search.ledger import PROOF_TYPES, Ledger
from dse.search.question import Answer, Evaluate, Question

METHOD = "bound"
_PART = 16384
# Points that climb to a tighter rung at a time: enough for columns to pay, few enough to stay lazy.
_CLIMB, _LAST_CLIMB = 256, 16
_CLIMB_SHARE = 20
# Survivors from which on a few are simulated first, one a stretch, so that most never climb.
_LARGE, _STRETCHES = 2000, 16


def search(survivors: pl.DataFrame, evaluate: Evaluate, question: Question) -> Answer:
    """Return the front of `survivors`, exact or within `question.tolerance`, with its certificate.

    The order of rounds depends on the question alone: workers, kills and resumes change nothing.
    Without bounds every survivor is simulated.
    """
    ledger = Ledger(survivors=survivors, evaluate=evaluate, question=question)
    open_points = _Open(survivors=survivors, question=question)
    open_points.start()
    while open_points.n_left:
        room = None if question.budget is None else question.budget - ledger.n_simulated
        chosen = open_points.next_round().head(question.round_size if room is None else room)
        if chosen.is_empty():
            break
        open_points.settle(ledger.simulate(chosen))
        open_points.drop()
        ledger.close_round(
            n_dropped=open_points.n_dropped,
            n_left=open_points.n_left,
            gap=open_points.gap(),
        )
    ledger.limits = open_points.limits
    proofs = pl.concat([PROOF_TYPES.to_frame(), *open_points.proofs])
    rivals = contenders(ledger) if not open_points.n_left else survivors.clear()
    if rivals.height:
        ledger.simulate(rivals)
        proofs = proofs.join(rivals, on="point", how="anti", maintain_order="left")
        ledger.close_round(n_dropped=proofs.height, n_left=0, gap=0.0)
    return ledger.answer(
        METHOD,
        question.tolerance,
        n_dropped=dict(proofs["rung"].value_counts().iter_rows()),
        proofs=proofs,
        n_left=open_points.n_left,
        gap=open_points.gap(),
    )


@dataclass(slots=True, kw_only=True)
class _Open:
    """The survivors that are neither simulated nor dropped, as rows of matrices.

    `boxes` are the costs of the tightest bound known, `rung` says which; `vectors` the same, but
    the most promising corner of a point that has a curve. `members` are the costs of the simulated
    feasible points, `member_points` who they are.
    """

    survivors: pl.DataFrame
    question: Question
    places: Places = field(init=False)
    boxes: Matrix = field(init=False)
    vectors: Matrix = field(init=False)
    curves: Corners = field(init=False)
    rung: Places = field(init=False)
    members: Matrix = field(init=False)
    member_points: Places = field(init=False)
    fresh: Matrix = field(init=False)
    lag: Matrix = field(init=False)
    guessed: Guessed | None = None
    limits: list[pl.DataFrame] = field(default_factory=list)
    proofs: list[pl.DataFrame] = field(default_factory=list)

    @property
    def n_left(self) -> int:
        """Undecided points."""
        return len(self.places)

    @property
    def n_dropped(self) -> int:
        """Points that a bound proved needless."""
        return sum(proof.height for proof in self.proofs)

    @property
    def last_rung(self) -> int:
        """The index of the tightest bound; −1 where there is none."""
        return len(self.question.bounds) - 1

    def start(self) -> None:
        """Give every survivor the vector of the first rung."""
        width = len(self.question.objectives)
        self.places = np.arange(self.survivors.height)
        self.boxes = np.full((self.n_left, width), -np.inf)
        self.vectors = self.boxes.copy()
        self.curves = Corners.none(width)
        self.rung = np.full(self.n_left, -1)
        self.members = np.empty((0, width))
        self.fresh = np.empty((0, width))
        self.member_points = np.empty(0, dtype=np.int64)
        self.lag = np.empty((0, width))
        if self.question.bounds:
            self._climb(np.arange(self.n_left), 0)
        guessed, is_large = Guessed.none(self.question), self.n_left >= _LARGE
        if self.last_rung > 0 and self.question.bounds[1].curve is not None:
            # It knows many points at once: all climb, a part at a time.
            while len(rows := np.flatnonzero(self.rung == 0)[:_PART]):
                places = self.places[rows]
                self._climb(rows, 1)
                if is_large:
                    # What the bound has worked out of these points serves their guess as well.
                    guessed.add(self.survivors, places, self.question)
        elif is_large and self.last_rung > 0:
            for start in range(0, self.n_left, _PART):
                guessed.add(self.survivors, self.places[start : start + _PART], self.question)
        self.vectors = self.boxes.copy()
        if self.n_left >= _LARGE and len(guessed.places):
            self.guessed = guessed
        else:
            self.drop()

    def next_round(self) -> pl.DataFrame:
        """The survivors to simulate next: undominated vectors of the last rung, at most a round.

        A leader with its tightest vector must be simulated, as no other's result can beat it; the
        sooner it is, the fewer loose ones climb. Where no leader is that tight, the tightest climb.
        """
        if self.guessed is not None:
            likely = self.guessed.next(self.places, self.members, self.question)
            if len(likely):
                return self.survivors[self.places[likely]]
            self.guessed = None
            self.drop()
        if not len(self.lag):
            seeds = self._seeds()
            if len(seeds):
                return self.survivors[self.places[seeds]]
        while self.n_left:
            leads = lowest(self.vectors)
            loose = leads & (self.rung < self.last_rung)
            tight = leads & ~loose
            if tight.any():
                return self.survivors[self.places[self._spread(np.flatnonzero(tight))]]
            level = int(self.rung[loose].max())
            self._climb(self._hopeful(leads, level), level + 1)
            self.drop()
        return self.survivors.clear()

    def _seeds(self) -> Places:
        """What is simulated before anything is known of a large space: of each stretch of the first
        objective the best by the tightest rung. Loose rungs drop most of the rest by them.
        """
        none = np.empty(0, dtype=np.int64)
        if self.n_left < _LARGE or self.last_rung < 1:
            return none
        for rung in range(int(self.rung.min()) + 1, self.last_rung + 1):
            size = 2 if rung == self.last_rung else _CLIMB // _STRETCHES
            self._climb(self._best_of_stretches(self.rung == rung - 1, size), rung)
            self.drop()
            if not self.n_left:
                return none
        return self._best_of_stretches(self.rung == self.last_rung, 1)

    def _best_of_stretches(self, among: Flags, most: int) -> Places:
        """Of rows whose first objective's bound is alike the `most` with the best others."""
        rows = np.flatnonzero(among & np.isfinite(self.vectors).all(axis=1))
        if not len(rows):
            return rows
        first, others = self.vectors[rows, 0], self.vectors[rows, 1:].sum(axis=1)
        width = max(float(np.ptp(first)), 1e-12) / _STRETCHES
        stretch = np.minimum((first - first.min()) // width, _STRETCHES - 1)
        order = np.lexsort((first, others, stretch))
        starts = np.searchsorted(stretch[order], stretch[order], side="left")
        chosen: Places = np.sort(rows[order[np.arange(len(rows)) - starts < max(most, 1)]])
        return chosen

    def settle(self, found: pl.DataFrame) -> None:
        """Take simulated points out, and the feasible ones in among those that may beat others."""
        # What is unknown, as a price may be, beats nobody; costs count it as the best there is.
        columns = [pl.col(each.column).cast(pl.Float64) for each in self.question.objectives]
        able = found.filter("feasible", *(each.is_not_nan() for each in columns))
        values = costs(able, self.question.objectives)
        known = self._places_of(found)
        here = np.isin(self.places, known)
        vectors = {int(self.places[i]): self.vectors[i] for i in np.flatnonzero(here)}
        bounds = [vectors[int(place)] for place in self._places_of(able)]
        if bounds:
            limits = np.vstack(bounds)
            lag = np.subtract(values, limits, where=np.isfinite(limits), out=np.zeros_like(limits))
            self.lag = np.vstack([self.lag, lag])
        if self.guessed is not None:
            every = costs(found, self.question.objectives)
            self.guessed.learn(known, every, found["feasible"].to_numpy())
        self.members, self.fresh = (
            np.vstack([self.members, values]),
            np.vstack([self.fresh, values]),
        )
        points = able["point"].to_numpy().astype(np.int64)
        self.member_points = np.concatenate([self.member_points, points])
        keep = lowest(self.members)
        self.members, self.member_points = self.members[keep], self.member_points[keep]
        self._keep(~here)

    def drop(self) -> None:
        """Drop every vector that a simulated feasible point beats, and record who."""
        by = beaten_by(self.members, self.boxes, self.question.tolerance)
        self._record(by >= 0, self.member_points[by[by >= 0]])
        # Of whose box is left each corner of its curve may be beaten by another member.
        last = self.curves.beat(self.members, self.fresh, self.question.tolerance)
        self.fresh = self.fresh[:0]
        gone = np.isin(self.places, list(last))
        whose = [last[place] for place in self.places[gone].tolist()]
        self._record(gone, self.member_points[np.array(whose, dtype=np.int64)])
        self._lead()

    def gap(self) -> float:
        """The most by which an undecided point may still beat the front, relative."""
        return gap(self.members, self.vectors)

    def _climb(self, rows: Places, rung: int) -> None:
        """Give the rows the tighter of their vector and that of `rung`."""
        bound = self.question.bounds[rung]
        points = self.survivors[self.places[rows]]
        objectives = self.question.objectives
        found = points.select("point").join(
            optimistic(bound, points, self.question), on="point", how="left", maintain_order="left"
        )
        self.boxes[rows] = np.maximum(self.boxes[rows], costs(found, objectives))
        if bound.curve is not None:
            ends = costs(corners(bound, points, self.question), objectives)
            self.curves.add(self.places[rows], self.boxes[rows], ends)
        else:
            self.curves.raise_to(self.places[rows], self.boxes[rows])
        self.rung[rows] = rung
        if rung == self.last_rung:
            self.limits.append(found)
        hopeless = np.zeros(self.n_left, dtype=bool)
        hopeless[rows] = found["hopeless"].fill_null(value=False).to_numpy()
        self._record(hopeless, None)

    def _lead(self) -> None:
        """Let the corner of each curve that promises most stand for its point."""
        self.vectors = self.boxes.copy()
        places, best = self.curves.best()
        self.vectors[np.searchsorted(self.places, places)] = best

    def _hopeful(self, leads: Flags, level: int) -> Places:
        """Leaders on rung `level`, filled up with those there that promise most."""
        is_last = level + 1 == self.last_rung
        size = _LAST_CLIMB if is_last else max(_CLIMB, self.n_left // _CLIMB_SHARE)
        value = promise(self.members, self.vectors)
        value[leads] = np.inf
        value[self.rung != level] = -np.inf
        best = np.argsort(-value, kind="stable")[:size]
        return np.sort(best[value[best] > -np.inf])

    def _spread(self, leads: Places) -> Places:
        """At most a round of leaders such that, as results lag behind bounds so far, each of the
        others would be dropped by one of them; what drops most comes first, ties by row.
        """
        vectors = self.vectors[leads]
        lag = np.median(self.lag, axis=0) if len(self.lag) else np.zeros(vectors.shape[1])
        return leads[spread(vectors, vectors + np.maximum(lag, 0.0), self.question)]

    def _places_of(self, frame: pl.DataFrame) -> Places:
        order = self.survivors.select("point").with_row_index("place")
        joined = frame.select("point").join(order, on="point", maintain_order="left")
        return joined["place"].to_numpy().astype(np.int64)

    def _record(self, gone: Flags, dominators: Places | None) -> None:
        """Take rows out with the rung that did it and the point that proves it."""
        if not gone.any():
            return
        names = np.array([bound.rung for bound in self.question.bounds])
        proof = pl.DataFrame(
            {
                "point": self.survivors["point"][self.places[gone]],
                "dominated_by": [None] * int(gone.sum()) if dominators is None else dominators,
                "rung": names[self.rung[gone]],
            },
            schema=PROOF_TYPES,
        )
        self.proofs.append(proof)
        self._keep(~gone)

    def _keep(self, rows: Flags) -> None:
        self.places, self.boxes, self.rung = self.places[rows], self.boxes[rows], self.rung[rows]
        self.vectors = self.vectors[rows]
        self.curves.keep(self.places)
