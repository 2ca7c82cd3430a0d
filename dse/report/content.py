"""A report before it is HTML, Markdown or text: sections with their charts, tables and data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from dse.report.answer import Answer, answer
from dse.report.drawn import drawn, span, spans_decades, with_words
from dse.report.layouts import FAMILIES, sentence
from dse.report.quantities import DEFINITIONS, Quantity, quantity
from dse.report.record import Outcome
from dse.report.subject import Subject, subject
from dse.report.tables import Table, front_table, funnel_rows, near_misses, provenance

__all__ = ["Content", "Figure", "Section", "content"]

MOST_MEMBERS = 200

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with what it says to those who cannot see it (`alt`), and its `caption`."""

    name: str
    spec: Mapping[str, Any]
    alt: str
    caption: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of the report, in the order in which it is read."""

    name: str
    title: str
    lines: tuple[str, ...] = ()
    charts: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    lists: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Everything that a report says; `datasets` are what its charts name."""

    subject: Subject
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
    sections, datasets = _front(outcome, about, details)
    funnel_section, funnel_data = _funnel(outcome)
    every = [sections, funnel_section, _provenance(outcome)]
    return Content(
        subject=about,
        answer=answer(outcome, about),
        alerts=tuple(_alerts(outcome)),
        sections=tuple(each for each in every if each is not None),
        datasets={**datasets, **funnel_data},
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


def _front(outcome: Outcome, about: Subject, details: list[str]) -> tuple[Section, dict[str, Rows]]:
    from dse.report.charts.front import FrontAxes, front

    x, y = about.x, about.y
    words = ["point_id", "gpu", "n_gpus", "layout", "family", "precision", "context", "on_front"]
    columns = [*words, "feasible", x.column, y.column, *details]
    shown = drawn(outcome.results, about, columns)
    bounds = [
        (where, bound.limit * axis.scale, bound.text)
        for bound in about.bounds()
        for where, axis in (("x", x), ("y", y))
        if bound.column == axis.column or (where == "x" and _same_latency(bound.column, axis))
    ]
    members = outcome.front
    precisions = sorted(set(members["precision"].drop_nulls()))
    axes = FrontAxes(
        x=x,
        y=y,
        gpus=_ordered(shown.rows, "gpu"),
        families=[name for name in FAMILIES if name in set(shown.rows["family"])],
        precisions=precisions,
        bounds=bounds,
        x_span=span(shown.rows[x.column], x, [b for w, b, _ in bounds if w == "x"]),
        y_span=span(shown.rows[y.column], y, [b for w, b, _ in bounds if w == "y"]),
        log_x=spans_decades(shown.rows[x.column]),
        log_y=spans_decades(shown.rows[y.column]),
        details=[name for name in details if name not in (x.column, y.column)][:6],
    )
    figure = Figure(
        name="front",
        spec=front(axes).to_dict(),
        alt=_alt(outcome, x, y),
        caption=_caption(shown.note, precisions),
    )
    words_of = [
        {"point_id": row["point_id"], "sentence": sentence(row)}
        for row in members.head(MOST_MEMBERS).iter_rows(named=True)
    ]
    section = Section(
        name="front",
        title="Pareto front",
        lines=_mixed(precisions),
        charts=(figure,) if shown.rows.height else (),
        tables=(front_table(members, about),),
    )
    datasets: dict[str, Rows] = {"results": shown.rows.to_dicts(), "words": words_of}
    datasets["front"] = members.head(MOST_MEMBERS).to_dicts()
    return section, datasets


def _same_latency(bound: str, axis: Quantity) -> bool:
    """A bound on a percentile also stands on the axis of the same latency's mean."""
    return axis.column.endswith("_s") and bound.partition("_")[0] == axis.column.partition("_")[0]


def _mixed(precisions: list[str]) -> tuple[str, ...]:
    if len(precisions) < 2:
        return ()
    return (
        f"The front mixes precisions ({', '.join(precisions)}, weights / KV), which do not answer "
        "alike: compare within one of them; each has a line of its own.",
    )


def _alt(outcome: Outcome, x: Quantity, y: Quantity) -> str:
    text = f"Scatter of {outcome.results.height:,} simulated points: {y.label} against {x.label}"
    return f"{text}; {outcome.front.height} are on the front. The table below holds them."


def _caption(note: str, precisions: list[str]) -> str:
    text = "Faint points are beaten in every objective by one on the line. Choose a point or a "
    text += "row to see it in every chart; choose a GPU in the legend to see it alone."
    return f"{text} {note}".strip()


def _ordered(rows: pl.DataFrame, column: str) -> list[str]:
    return sorted(set(rows[column].drop_nulls()))


def _funnel(outcome: Outcome) -> tuple[Section, dict[str, Rows]]:
    from dse.report.charts.funnel import funnel

    results = outcome.results
    n_feasible = int(results["feasible"].sum()) if "feasible" in results.columns else None
    rows = funnel_rows(outcome.funnel, n_feasible, outcome.front.height)
    figure = Figure(
        name="funnel",
        spec=funnel(len(rows)).to_dict(),
        alt="Bars: " + ", ".join(f"{row['step']} {row['text']}" for row in rows),
        caption="Points after each step (blue) and taken away by it, on a logarithmic axis. Walls "
        "are sound: they remove nothing that the simulator would find feasible.",
    )
    section = Section(
        name="funnel",
        title="Why not the others",
        charts=(figure,),
        tables=(near_misses(outcome.near_misses),),
    )
    return section, {"funnel": rows}


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
