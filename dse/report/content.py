"""A report before it is HTML, Markdown or text: sections with their charts, tables and data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from dse.report.answer import Answer, answer
from dse.report.drawn import drawn, span, spans_decades, with_words
from dse.report.layouts import FAMILIES, sentence
from dse.report.load import latency, tightened
from dse.report.physics import breakdown, roofline, walls
from dse.report.procurement import procurement
from dse.report.quantities import DEFINITIONS, Quantity, is_known, quantity
from dse.report.record import Outcome
from dse.report.section import Figure, Part, Rows, Section
from dse.report.sensitivity import sensitivity
from dse.report.subject import Subject, subject
from dse.report.tables import front_table, funnel_rows, near_misses, provenance

__all__ = ["Content", "content"]

MOST_MEMBERS = 200


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
        _front(outcome, about, details),
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


def _front(outcome: Outcome, about: Subject, details: list[str]) -> Part | None:
    """The Pareto chart and the front's table; the simulated points alone where none is feasible,
    and None where none was simulated.
    """
    from dse.report.charts.front import FrontAxes, front

    x, y = about.x, about.y
    words = ["point_id", "gpu", "n_gpus", "layout", "family", "precision", "context", "on_front"]
    columns = [*words, "on_own_front", "feasible", x.column, y.column, *details]
    shown = drawn(outcome.results, about, columns)
    if shown.rows.is_empty():
        return None
    bounds = [
        (where, bound.limit * axis.scale, bound.text)
        for bound in about.bounds()
        for where, axis in (("x", x), ("y", y))
        if bound.column == axis.column or (where == "x" and _same_latency(bound.column, axis))
    ]
    members = outcome.front
    precisions = sorted(set(members["precision"].drop_nulls()))
    floors = _floors(outcome, x, y)
    spans = [
        span(shown.rows[each.column], each, _beside(where, each, bounds, floors))
        for where, each in (("x", x), ("y", y))
    ]
    axes = FrontAxes(
        x=x,
        y=y,
        gpus=_ordered(shown.rows, "gpu"),
        families=[name for name in FAMILIES if name in set(shown.rows["family"])],
        precisions=precisions,
        bounds=bounds,
        x_span=spans[0],
        y_span=spans[1],
        log_x=spans_decades(pl.Series(spans[0])),
        log_y=spans_decades(pl.Series(spans[1])),
        details=[name for name in details if name not in (x.column, y.column)][:6],
        optimistic=bool(floors),
        own_fronts="on_own_front" in shown.rows.columns,
        colour_by="gpu" if shown.rows["gpu"].n_unique() > 1 else "family",
    )
    figure = Figure(
        name="front",
        spec=front(axes).to_dict(),
        alt=_alt(outcome, x, y),
        wide=True,
        caption=_caption(shown.note, has_floors=bool(floors), has_front=members.height > 0),
    )
    words_of = [
        {"point_id": row["point_id"], "sentence": sentence(row)}
        for row in members.head(MOST_MEMBERS).iter_rows(named=True)
    ]
    datasets: dict[str, Rows] = {"results": shown.rows.to_dicts(), "words": words_of}
    if floors:
        datasets["optimistic"] = floors
    datasets["front"] = _plain(members.head(MOST_MEMBERS)).to_dicts()
    figures = [figure]
    if (second := tightened(outcome, about)) is not None:
        figures.append(second[0])
        datasets["bounds"] = second[1]
    section = Section(
        name="front",
        title="Pareto front" if members.height else "What was simulated",
        lines=_mixed(members),
        charts=tuple(figures),
        tables=(front_table(members, about),),
    )
    return Part(section=section, datasets=datasets)


def _floors(outcome: Outcome, x: Quantity, y: Quantity) -> Rows:
    """What decoding alone would give at peak rates, from the floors of the front's deployments: at
    c requests in flight a step takes t_opt and yields c tokens. In order along x.

    Empty where the axes are others, or where a step is not a token a request (drafts, stages).
    """
    if not x.column.startswith("tpot") or y.column != "output_tok_per_s_per_gpu":
        return []
    found = []
    for row in outcome.front.iter_rows(named=True):
        plain = (row.get("decode_pp") or row.get("pp") or 1) == 1
        drafts = row.get("speculative") not in (None, "none")
        if not plain or drafts:
            continue
        for each in outcome.details.get(row["point_id"], {}).get("curve") or []:
            rate = each["concurrency"] / each["t_opt_s"] / row["n_gpus"]
            found.append({x.column: each["t_opt_s"], y.column: rate})
    best, kept = 0.0, []
    for each in sorted(found, key=lambda pair: (pair[x.column], -pair[y.column])):
        if each[y.column] > best:
            best = each[y.column]
            kept.append(each)
    return kept


def _plain(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` without the facts that walls and floors read, which no reader asks a page for."""
    known = [name for name in rows.columns if is_known(name)]
    return rows.select(known)


def _beside(
    where: str, each: Quantity, bounds: Sequence[tuple[str, float, str]], floors: Rows
) -> list[float]:
    """Values that an axis shows where they are near its points: SLO bounds and floors."""
    stated = [value for axis, value, _ in bounds if axis == where]
    return [*stated, *(row[each.column] * each.scale for row in floors)]


def _same_latency(bound: str, axis: Quantity) -> bool:
    """A bound on a percentile also stands on the axis of the same latency's mean."""
    return axis.column.endswith("_s") and bound.partition("_")[0] == axis.column.partition("_")[0]


def _mixed(members: pl.DataFrame) -> tuple[str, ...]:
    """What a front mixes that does not answer alike."""
    found = []
    for column, what in (("precision", "precisions"), ("context", "contexts"), ("model", "models")):
        values = sorted(set(members[column].drop_nulls())) if column in members.columns else []
        if len(values) > 1:
            own = "; each precision has a line of its own" if column == "precision" else ""
            found.append(
                f"The front mixes {what} ({', '.join(values)}), which do not ask or answer alike: "
                f"compare within one{own}."
            )
    return tuple(found)


def _alt(outcome: Outcome, x: Quantity, y: Quantity) -> str:
    text = f"Scatter of {outcome.results.height:,} simulated points: {y.label} against {x.label}"
    if not outcome.front.height:
        return f"{text}; none is feasible."
    return f"{text}; {outcome.front.height} are on the front. The table below holds them."


def _caption(note: str, *, has_floors: bool, has_front: bool) -> str:
    if not has_front:
        return f"None of these points keeps the SLO and the constraints. {note}".strip()
    text = "Open points are beaten in every objective by one on the line; the faintest miss the "
    text += "SLO or a constraint. Choose a point or a row to see it in every chart, a colour in "
    text += "the legend to see it alone."
    if has_floors:
        text += " Dotted: what decoding alone would give at peak rates (the floor t_opt)."
    return f"{text} {note}".strip()


def _ordered(rows: pl.DataFrame, column: str) -> list[str]:
    return sorted(set(rows[column].drop_nulls()))


def _funnel(outcome: Outcome) -> Part:
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
    return Part(section=section, datasets={"funnel": rows})


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
