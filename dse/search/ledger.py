"""What a search knows so far: results, front, rounds, and how it all becomes an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from dse.pareto import hypervolume, non_dominated, reference_point
from dse.search.gather import best_first, judged, simulated, tightness, violations
from dse.search.question import Answer, Bound, Certificate, Evaluate, Question, Round, Violation

PROOF_TYPES = pl.Schema({"point": pl.UInt64, "dominated_by": pl.UInt64, "rung": pl.String})


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Results of one search as they come in; each is compared with its bounds at once."""

    survivors: pl.DataFrame
    evaluate: Evaluate
    question: Question
    frames: list[pl.DataFrame] = field(default_factory=list)
    limits: list[pl.DataFrame] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    broken: list[Violation] = field(default_factory=list)
    volumes: list[tuple[int, float]] = field(default_factory=list)
    members: pl.DataFrame | None = None
    reference: tuple[float, ...] | None = None

    @property
    def n_simulated(self) -> int:
        """Points simulated so far."""
        return sum(frame.height for frame in self.frames)

    def simulate(self, points: pl.DataFrame) -> pl.DataFrame:
        """Evaluate rows of survivors; returns one row a point, and keeps it."""
        rows = self.evaluate(points)
        found = simulated(rows, points, self.question)
        for bound in self.question.bounds:
            self.broken += violations(rows, bound, points, self.question)
        self.frames.append(found)
        self._extend_front(found)
        return found

    def close_round(self, *, n_dropped: int, n_left: int, gap: float) -> None:
        """Record a round, and tell whoever watches."""
        objectives = self.question.objectives
        if self.members is not None and self.members.height:
            if self.reference is None:
                self.reference = reference_point(self.frame(), objectives)
            volume = hypervolume(self.members, objectives, self.reference)
            self.volumes.append((self.n_simulated, volume))
        n_front = self.members.height if self.members is not None else 0
        progress = Round(
            n_simulated=self.n_simulated,
            n_dropped=n_dropped,
            n_left=n_left,
            n_front=n_front,
            gap=gap,
        )
        self.rounds.append(progress)
        self.question.report(progress)

    def frame(self) -> pl.DataFrame:
        """All results, one row a point, in the survivors' order."""
        if not self.frames:
            return simulated(_no_rows(), self.survivors.clear(), self.question)
        order = self.survivors.select("point")
        rows = pl.concat(self.frames, how="diagonal_relaxed")
        return order.join(rows, on="point", how="inner", maintain_order="left")

    def answer(
        self,
        method: str,
        tolerance: float | None,
        *,
        n_dropped: Mapping[str, int] | None = None,
        proofs: pl.DataFrame | None = None,
        n_left: int = 0,
        gap: float = 0.0,
    ) -> Answer:
        """The answer with its certificate; `n_left` points are undecided for want of budget."""
        question = self.question
        frame = judged(self.frame(), question.objectives)
        gaps = {}
        if self.limits:
            gaps = tightness(frame, pl.concat(self.limits), question.objectives)
        certificate = Certificate(
            method=method,
            tolerance=tolerance,
            n_survivors=self.survivors.height,
            n_simulated=frame.height,
            n_dropped=dict(n_dropped or {}),
            n_failed=frame.filter(pl.col("status") != "ok").height,
            rounds=tuple(self.rounds),
            n_left=n_left,
            gap=gap,
            violations=tuple(self.broken),
            tightness=gaps,
        )
        kinds = pl.Schema({"n_simulated": pl.Int64, "hypervolume": pl.Float64})
        return Answer(
            frame=frame,
            front=best_first(frame, question.objectives),
            certificate=certificate,
            proofs=proofs if proofs is not None else pl.DataFrame(schema=PROOF_TYPES),
            history=pl.DataFrame(self.volumes, schema=kinds, orient="row"),
        )

    def _extend_front(self, found: pl.DataFrame) -> None:
        columns = [each.column for each in self.question.objectives]
        able = found.filter("feasible").select("point", *columns)
        if self.members is not None:
            able = pl.concat([self.members, able])
        self.members = non_dominated(able, self.question.objectives)


def tightest(bounds: tuple[Bound, ...]) -> Bound | None:
    """The last rung."""
    return bounds[-1] if bounds else None


def _no_rows() -> pl.DataFrame:
    return pl.DataFrame(
        schema={"point": pl.UInt64, "replicate": pl.Int32, "status": pl.String, "error": pl.String}
    )
