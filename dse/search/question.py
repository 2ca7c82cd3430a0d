"""What a search is asked and what it answers; the same for every method."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

import polars as pl

from dse.pareto import Objective

Evaluate = Callable[[pl.DataFrame], pl.DataFrame]
"""Rows of survivors → a row a point and replicate: `point`, `replicate`, `status`, `error`, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One rung of optimistic metrics.

    `of` takes rows of survivors and gives `point`, `replicate` where the bound knows the realised
    requests, and metrics no worse than any simulation of that point can give. A metric that it does
    not bound is left out or null. `curve` gives several rows a point, its corners: of a single
    replicate each simulation that keeps the SLO is no better than one of them in any metric.
    `checked` gives what results are compared with, where `of` proves more than they need. `guess`
    gives likely metrics and `strain`, up to 1 where the SLO is likely kept (null: unknown): they
    decide the order and nothing else.
    """

    rung: str
    of: Callable[[pl.DataFrame], pl.DataFrame] = field(repr=False)
    curve: Callable[[pl.DataFrame], pl.DataFrame] | None = field(default=None, repr=False)
    checked: Callable[[pl.DataFrame], pl.DataFrame] | None = field(default=None, repr=False)
    guess: Callable[[pl.DataFrame], pl.DataFrame] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """How far a search was after a round: points simulated, dropped and left; size of the front;
    `gap`, the most by which an undecided point may still beat the front (1 = 100%).
    """

    n_simulated: int
    n_dropped: int
    n_left: int
    n_front: int
    gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched for.

    `objectives` read metrics and columns of the survivors. `feasible` is a Boolean over a point's
    mean metrics, objectives and columns (SLO and constraints); `hopeless` one over its optimistic
    ones that proves it infeasible. `tolerance` is relative: 0 asks for the exact front. `bounds` go
    from the cheap and loose to the dear and tight. `axes` are the columns that a sampler varies.
    `budget` is the most points that are simulated; None: as many as a proof takes. `contenders` are
    simulated beside those, so many of a kind at most, for whoever reads of the best.
    """

    objectives: tuple[Objective, ...]
    feasible: pl.Expr | None = None
    hopeless: pl.Expr | None = None
    bounds: tuple[Bound, ...] = ()
    tolerance: float = 0.02
    round_size: int = 64
    axes: tuple[str, ...] = ()
    budget: int | None = None
    contenders: int = 0
    seed: int = 0
    on_round: Callable[[Round], None] | None = field(default=None, repr=False)

    def report(self, progress: Round) -> None:
        """Tell whoever watches."""
        if self.on_round is not None:
            self.on_round(progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A simulated result better than its own bound: the bound, or the simulator, is wrong."""

    point: int
    rung: str
    objective: str
    result: float
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a search proved.

    `tolerance` 0 is the exact front of the simulator at the study's replicates; None that nothing
    is proved about points that were not simulated. `n_left` were undecided when the budget was
    spent, and by their bounds beat the front by `gap` at most (infinity: nothing is known of that).
    `tightness` gives per objective the median and the 95th percentile of result ÷ bound (or its
    inverse where more is better), minus 1.
    """

    method: str
    tolerance: float | None
    n_survivors: int
    n_simulated: int
    n_dropped: Mapping[str, int]
    n_failed: int
    rounds: tuple[Round, ...]
    n_left: int = 0
    gap: float = 0.0
    violations: tuple[Violation, ...] = ()
    tightness: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """No simulated result beat its own bound."""
        return not self.violations

    @property
    def statement(self) -> str:
        """The certificate in a sentence."""
        simulated = f"{self.n_simulated:,} of {self.n_survivors:,} survivors simulated"
        if not self.valid:
            worst = self.violations[0]
            return (
                f"VOID: {len(self.violations)} results beat their own bound, the first at point "
                f"{worst.point}: {worst.objective} {worst.result:.6g} against a {worst.rung} bound "
                f"of {worst.bound:.6g}"
            )
        failed = f"; {self.n_failed:,} failed and are not judged" if self.n_failed else ""
        dropped = f"{sum(self.n_dropped.values()):,} dropped by bound"
        if self.n_left:
            may = "any of which may belong on it"
            if isfinite(self.gap):
                share = f"{100 * self.gap:,.0f}%" if self.gap >= 1.0 else f"{100 * self.gap:.3g}%"
                may = f"which by their bounds may beat it by up to {share}"
            return (
                f"the search ended before the front was proved: {simulated}, {dropped}, "
                f"{self.n_left:,} undecided, {may}{failed}"
            )
        if self.tolerance is None:
            return f"{simulated}; nothing is proved about the others"
        if self.tolerance > 0:
            front = f"no other survivor beats the front by more than {100 * self.tolerance:.3g}%"
        else:
            front = "the front is exact"
        return f"{front}: {simulated}, {dropped}{failed}"

    def record(self) -> dict[str, Any]:
        """The certificate as plain data."""
        return asdict(self) | {"valid": self.valid, "statement": self.statement}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a search found.

    `frame`: one row a simulated point: the survivors' columns, `status`, mean metrics, objectives
    with `<objective>_low` and `_high` over replicates, `feasible`, `on_front`, `front_rank`,
    `is_tie`. `front`: its feasible non-dominated rows, best first by the first objective. `proofs`:
    `point`, `dominated_by` (a point; null: `hopeless`), `rung`. `history`: `n_simulated`,
    `hypervolume` after each round.
    """

    frame: pl.DataFrame
    front: pl.DataFrame
    certificate: Certificate
    proofs: pl.DataFrame
    history: pl.DataFrame

    @property
    def n_simulated(self) -> int:
        """Points whose results were asked for, fresh or stored."""
        return self.certificate.n_simulated

    @property
    def n_dropped_by_bound(self) -> int:
        """Points that a bound proved needless to simulate."""
        return sum(self.certificate.n_dropped.values())

    @property
    def n_failed(self) -> int:
        """Simulated points that gave no result."""
        return self.certificate.n_failed
