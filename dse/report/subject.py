"""What a report needs to know of the study it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dse.pareto.objectives import Objective
from dse.report.quantities import Quantity, quantity
from dse.serving.slo import SLO

if TYPE_CHECKING:
    from dse.report.record import Outcome

__all__ = ["Bound", "Subject", "is_latency", "shown", "subject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One bound of the SLO on a result's column; `limit` in the column's SI unit."""

    column: str
    limit: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The question and what it is judged by; `target_req_per_s` None where no load is named."""

    name: str
    question: str
    slo: SLO
    objectives: tuple[Objective, ...]
    target_req_per_s: float | None
    columns: Sequence[str]

    @property
    def first(self) -> Quantity:
        """The objective by which the front is ordered."""
        return shown(self.objectives[0])

    @property
    def x(self) -> Quantity:
        """The horizontal axis of the Pareto chart: the first latency or interactivity of the
        objectives; where they have none, the one that `y` is weighed against.
        """
        latencies = [each for each in self.objectives if is_latency(each.column)]
        others = [each for each in self.objectives if each.column != self.y.column]
        if latencies or others:
            return shown((latencies or others)[0])
        return quantity(next((c for c in _LATENCY_COLUMNS if c in self.columns), "tpot_p99_s"))

    @property
    def y(self) -> Quantity:
        """The vertical axis of the Pareto chart: the first objective that is no latency; of those
        the first that is better high, so that the best corner is the upper left one.
        """
        yields = [each for each in self.objectives if not is_latency(each.column)]
        high = [each for each in yields if each.direction == "max"]
        if yields:
            return shown((high or yields)[0])
        return quantity("output_tok_per_s_per_gpu")

    def bounds(self) -> list[Bound]:
        """The SLO's bounds as they hold for the percentile that its attainment asks for."""
        percent = round(100 * self.slo.attainment, 6)
        found = []
        for metric in ("ttft", "tpot", "e2e"):
            limit = getattr(self.slo, f"{metric}_s")
            if limit is not None:
                column = f"{metric}_p{percent:g}_s"
                text = f"{metric.upper()} p{percent:g} ≤ {_amount(column, limit)}"
                found.append(Bound(column=column, limit=limit, text=text))
        return found

    def slo_text(self) -> str:
        """The SLO in words."""
        parts = [
            f"{metric.upper()} ≤ {_amount(f'{metric}_s', limit)}"
            for metric in ("ttft", "tpot", "e2e")
            if (limit := getattr(self.slo, f"{metric}_s")) is not None
        ]
        if not parts:
            return "no SLO"
        return f"{' and '.join(parts)} for {100 * self.slo.attainment:g}% of requests"


def subject(outcome: "Outcome") -> Subject:
    """What the report says of its study."""
    study = outcome.study
    return Subject(
        name=study.name,
        question=study.question,
        slo=study.slo or SLO(),
        objectives=study.parts,
        target_req_per_s=study.target.req_per_s if study.target else None,
        columns=outcome.results.columns,
    )


def is_latency(column: str) -> bool:
    """Whether a column says what one user waits or sees."""
    return column.startswith(("tpot", "ttft", "itl", "e2e")) or column == "tok_per_s_per_user"


def shown(objective: Objective) -> Quantity:
    """How an objective's column is shown; one that no table knows goes by its own title."""
    known = quantity(objective.column)
    title = known.title if known.unit else objective.title
    return Quantity(
        column=objective.column,
        title=title,
        unit=known.unit or objective.unit,
        scale=known.scale,
        better=objective.direction,
    )


_LATENCY_COLUMNS = ("tpot_p99_s", "tpot_mean_s", "tpot_p50_s", "e2e_mean_s")


def _amount(column: str, seconds: float) -> str:
    each = quantity(column)
    return f"{seconds * each.scale:g} {each.unit}"
