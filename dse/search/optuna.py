"""A sampler for spaces beyond the simulation budget: multi-objective TPE by ask and tell.

Nothing is proved about what it does not simulate. It starts from the analytic front, asks in
batches, and never simulates a combination twice. Optuna keeps no file: results live in the store,
and since the seed fixes every proposal, a resumed run asks the same again and finds them there.
(Tree-structured Parzen estimator: Bergstra et al. 2011; multi-objective: Ozaki et al. 2022.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dse.pareto import lowest, reference_point
from dse.search.dominance import costs
from dse.search.gather import optimistic
from dse.search.ledger import Ledger
from dse.search.question import Answer, Evaluate, Question

if TYPE_CHECKING:
    from optuna import Study, Trial

METHOD = "optuna"
# Proposals for each place of a round; what known combinations leave free is filled at random.
_PATIENCE = 3
_NO_AXES = frozenset({"point", "structure", "context", "concurrency", "predicted_s"})
Key = tuple[Any, ...]


def search(survivors: pl.DataFrame, evaluate: Evaluate, question: Question) -> Answer:
    """Simulate at most `question.budget` of `survivors`, as a TPE sampler proposes them."""
    ledger = Ledger(survivors=survivors, evaluate=evaluate, question=question)
    if survivors.is_empty():
        return ledger.answer(METHOD, None)
    sampler = _Sampler.of(survivors, question)
    points = _analytic_front(survivors, question)
    budget = _budget(survivors, question)
    while not points.is_empty():
        sampler.learn(ledger.simulate(points))
        n_left = survivors.height - ledger.n_simulated
        ledger.close_round(n_dropped=0, n_left=n_left, gap=float("inf") if n_left else 0.0)
        room = min(budget - ledger.n_simulated, question.round_size)
        points = sampler.propose(room)
    return ledger.answer(METHOD, None)


def _budget(survivors: pl.DataFrame, question: Question) -> int:
    return survivors.height if question.budget is None else question.budget


def _analytic_front(survivors: pl.DataFrame, question: Question) -> pl.DataFrame:
    """A first round: points that no other's cheapest bound dominates, else a sample."""
    size = min(question.round_size, _budget(survivors, question))
    if not question.bounds:
        return survivors.sample(min(size, survivors.height), seed=question.seed)
    limits = optimistic(question.bounds[0], survivors, question)
    front = limits.filter(pl.Series(lowest(costs(limits, question.objectives))))
    chosen = front.select("point").head(size)
    return survivors.join(chosen, on="point", how="semi", maintain_order="left")


@dataclass(slots=True, kw_only=True)
class _Sampler:
    """Optuna's study over the axes, and what is known of each combination."""

    survivors: pl.DataFrame
    question: Question
    axes: tuple[str, ...]
    study: "Study"
    spaces: Mapping[str, Any]
    rows: Mapping[Key, int]
    random: Random
    results: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    waiting: list[tuple["Trial", Key]] = field(default_factory=list)

    @classmethod
    def of(cls, survivors: pl.DataFrame, question: Question) -> "_Sampler":
        """An empty study whose choices are the values of the axes."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        axes = question.axes or tuple(
            name
            for name in survivors.columns
            if name not in _NO_AXES and survivors[name].n_unique() > 1
        )
        spaces = {
            name: optuna.distributions.CategoricalDistribution(
                survivors[name].unique(maintain_order=True).to_list()
            )
            for name in axes
        }
        ways = optuna.study.StudyDirection
        study = optuna.create_study(
            directions=[
                ways.MAXIMIZE if each.direction == "max" else ways.MINIMIZE
                for each in question.objectives
            ],
            sampler=optuna.samplers.TPESampler(seed=question.seed),
        )
        keys = survivors.select(axes).rows() if axes else [()] * survivors.height
        rows: dict[Key, int] = {}
        for place, key in enumerate(keys):
            rows.setdefault(key, place)
        return cls(
            survivors=survivors,
            question=question,
            axes=axes,
            study=study,
            spaces=spaces,
            rows=rows,
            random=Random(question.seed),
        )

    def propose(self, room: int) -> pl.DataFrame:
        """Up to `room` points that were not simulated yet; none when all were."""
        chosen: dict[Key, int] = {}
        for _ in range(_PATIENCE * max(room, 0)):
            trial = self.study.ask(dict(self.spaces))
            key = tuple(trial.params[name] for name in self.axes)
            if key in self.rows and key not in self.results:
                chosen[key] = self.rows[key]
                self.waiting.append((trial, key))
            else:
                self._tell(trial, key)
            if len(chosen) == room:
                break
        if len(chosen) < room:
            unseen = [k for k in self.rows if k not in self.results and k not in chosen]
            self.random.shuffle(unseen)
            chosen |= {key: self.rows[key] for key in unseen[: room - len(chosen)]}
        return self.survivors[sorted(chosen.values())]

    def learn(self, found: pl.DataFrame) -> None:
        """Take results in: tell the trials that asked for them, add those that nobody asked for."""
        for row in found.iter_rows(named=True):
            self.results[tuple(row[name] for name in self.axes)] = row
        asked = {key for _, key in self.waiting}
        for trial, key in self.waiting:
            self._tell(trial, key)
        self.waiting.clear()
        unasked = [row for row in found.iter_rows(named=True) if self._key(row) not in asked]
        self._add(unasked)

    def _key(self, row: Mapping[str, Any]) -> Key:
        return tuple(row[name] for name in self.axes)

    def _add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        import optuna

        for row in rows:
            if row["status"] == "ok":
                trial = optuna.create_trial(
                    params={name: row[name] for name in self.axes},
                    distributions=dict(self.spaces),
                    values=self._values(row),
                    constraints=_constraints(row),
                )
                self.study.add_trial(trial)

    def _tell(self, trial: "Trial", key: Key) -> None:
        """What is known of a proposal: its result, a failure, or that a wall has killed it."""
        import optuna

        row = self.results.get(key)
        if row is not None and row["status"] != "ok":
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        for name, value in _constraints(row).items():
            trial.set_constraint(name, value)
        self.study.tell(trial, self._values(row) if row is not None else list(self._worst()))

    def _values(self, row: Mapping[str, Any]) -> list[float]:
        worst = self._worst()
        found = [row[each.column] for each in self.question.objectives]
        return [v if _is_finite(v) else w for v, w in zip(found, worst, strict=True)]

    def _worst(self) -> tuple[float, ...]:
        known = pl.DataFrame(
            [
                {o.column: row[o.column] for o in self.question.objectives}
                for row in self.results.values()
            ],
            schema={o.column: pl.Float64 for o in self.question.objectives},
        )
        return reference_point(known, self.question.objectives)


def _constraints(row: Mapping[str, Any] | None) -> dict[str, float]:
    """At most 0 is feasible: `walls` for what no survivor is, `study` for SLO and constraints."""
    if row is None:
        return {"walls": 1.0, "study": 1.0}
    return {"walls": 0.0, "study": 0.0 if row["feasible"] else 1.0}


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))
