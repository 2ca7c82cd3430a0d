"""A report before it is HTML, Markdown or text: sections with their charts, tables and data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl

from dse.report.answer import Answer, answer
from dse.report.drawn import with_words
from dse.report.load import latency
from dse.report.pareto import pareto
from dse.report.physics import breakdown, roofline, walls
from dse.report.procurement import procurement
from dse.report.quantities import DEFINITIONS, Quantity, quantity
from dse.report.record import Funnel, Outcome
from dse.report.section import Figure, Part, Rows, Section
from dse.report.sensitivity import sensitivity
from dse.report.stopped import near_misses
from dse.report.subject import Subject, subject
from dse.report.tables import funnel_rows, provenance

__all__ = ["Content", "content"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything that a report says; `datasets` are what its charts name, `shown` the columns that
    a chosen point tells of itself, `front` the rows that go with it as files.
    """

    name: str
    question: str
    eyebrow: str
    answer: Answer
    alerts: tuple[str, ...]
    sections: tuple[Section, ...]
    datasets: Mapping[str, Rows]
    shown: tuple[Quantity, ...]
    front: pl.DataFrame = field(repr=False)


def content(outcome: Outcome) -> Content:
    """The report of one outcome."""
    outcome = replace(
        outcome,
        results=with_words(outcome.results),
        front=with_words(outcome.front),
        near_misses=with_words(outcome.near_misses),
    )
    about = subject(outcome)
    details = _details(outcome, about)
    parts = [
        pareto(outcome, about, details),
        procurement(outcome, about),
        sensitivity(outcome, about),
        walls(outcome),
        roofline(outcome),
        breakdown(outcome),
        latency(outcome, about),
        _funnel(outcome),
        Part(section=_provenance(outcome)),
    ]
    there = [part for part in parts if part is not None]
    return Content(
        name=about.name,
        question=about.question,
        eyebrow=about.slo_text(),
        answer=answer(outcome, about),
        alerts=tuple(_alerts(outcome)),
        sections=tuple(part.section for part in there),
        datasets={name: rows for part in there for name, rows in part.datasets.items()},
        shown=tuple(quantity(column) for column in details),
        front=outcome.front,
    )


def _details(outcome: Outcome, about: Subject) -> list[str]:
    """The columns that a point tells of itself when it is chosen."""
    wanted = [each.column for each in about.objectives]
    wanted += [bound.column for bound in about.bounds()]
    wanted += ["goodput_req_per_s_per_gpu", "output_tok_per_s_per_gpu", "tok_per_s_per_user"]
    wanted += ["usd_per_mtok_output", "slo_attainment", "kv_peak_fraction", "mbu", "mfu"]
    wanted += ["batch", "concurrency", "req_per_s"]
    return [name for name in dict.fromkeys(wanted) if name in outcome.results.columns]


def _funnel(outcome: Outcome) -> Part:
    from dse.report.charts.funnel import funnel
    from dse.report.charts.theme import spec_of

    results = outcome.results
    n_feasible = int(results["feasible"].sum()) if "feasible" in results.columns else None
    rows = funnel_rows(outcome.funnel, results.height, n_feasible, outcome.front.height)
    figure = Figure(
        name="funnel",
        spec=spec_of(funnel, len(rows)),
        alt="Bars: " + ", ".join(f"{row['step']} {row['text']}" for row in rows),
        caption="Points after each step (blue) and taken away by it, on a logarithmic axis. Walls "
        "are sound: they remove nothing that the simulator would find feasible."
        + _runs(outcome.funnel, results.height),
    )
    section = Section(
        name="funnel",
        title="Why not the others",
        charts=(figure,),
        tables=(near_misses(outcome.near_misses, results),),
    )
    return Part(section=section, datasets={"funnel": rows})


def _runs(funnel: Funnel, n_results: int) -> str:
    """How many simulations the points took, where one point took several."""
    n_runs = funnel.n_simulated + funnel.n_reused
    if n_runs <= n_results:
        return ""
    points = "1 point was" if n_results == 1 else f"{n_results:,} points were"
    return f" {points} simulated {n_runs:,} times: at several loads or seeds."


def _provenance(outcome: Outcome) -> Section:
    found = provenance(outcome)
    command = next((text for key, text in found if key == "command"), "")
    rest = tuple(pair for pair in found if pair[0] != "command")
    return Section(
        name="provenance",
        title="Where the numbers come from",
        lists=(("Definitions", DEFINITIONS), ("This run", rest)),
        command=command,
    )


def _alerts(outcome: Outcome) -> Iterable[str]:
    if outcome.certificate and outcome.certificate.get("valid") is False:
        yield f"The certificate is void: {outcome.certificate.get('statement', '')}"
    yield from outcome.notes
