"""Frames as tables: the same columns and cells on the page, in Markdown and in the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dse.base.units import UNITS, show
from dse.report.quantities import cell, quantity
from dse.report.record import Funnel, Outcome
from dse.report.subject import Subject

__all__ = [
    "Table",
    "amount",
    "distinct",
    "front_table",
    "funnel_rows",
    "markdown",
    "provenance",
    "table",
    "telling",
    "varied",
]

MOST_ROWS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`heads` and `rows` of text; `values` hold what each cell sorts by. `numeric` columns stand to
    the right; `keys` is the `point_id` of each row where it has one.
    """

    columns: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    values: tuple[tuple[Any, ...], ...]
    numeric: tuple[bool, ...]
    keys: tuple[str, ...] = ()
    note: str = ""


def table(
    frame: pl.DataFrame, columns: Sequence[str], heads: Mapping[str, str] | None = None
) -> Table:
    """The table of `columns` of `frame`, those that hold nothing left out."""
    held = [
        name
        for name in dict.fromkeys(columns)
        if name in frame.columns and frame[name].null_count() < frame.height
    ]
    rows = frame.head(MOST_ROWS)
    note = ""
    if frame.height > MOST_ROWS:
        note = f"The first {MOST_ROWS} of {frame.height:,} rows; all are in front.parquet."
    return Table(
        columns=tuple(held),
        heads=tuple((heads or {}).get(name) or quantity(name).label for name in held),
        rows=tuple(
            tuple(cell(name, value) for name, value in zip(held, row, strict=True))
            for row in rows.select(held).iter_rows()
        ),
        values=tuple(rows.select(held).iter_rows()),
        numeric=tuple(frame.schema[name].is_numeric() for name in held),
        keys=tuple(rows["point_id"]) if "point_id" in rows.columns else (),
        note=note,
    )


def front_table(front: pl.DataFrame, subject: Subject, among: pl.DataFrame) -> Table:
    """The front: what to launch, what it gives, what it costs; what is the same `among` all results
    is left out.
    """
    latencies = [bound.column for bound in subject.bounds()]
    numbers = [each.column for each in subject.objectives]
    numbers += [*latencies, "goodput_req_per_s_per_gpu", "output_tok_per_s_per_gpu"]
    numbers += ["usd_per_mtok_output"]
    extras = ["slo_attainment", "mbu", "mfu"]
    numbers += [name for name in extras if name in front.columns and front[name].n_unique() > 1]
    return table(front, [*telling(front, among), *numbers])


def telling(frame: pl.DataFrame, *among: pl.DataFrame) -> list[str]:
    """The columns that say which point a row is: GPU and layout, and those of the others that hold
    more than one value in `frame` and the frames that it stands `among`.
    """
    words = ["model", "gpu", "n_gpus", "layout", "precision", "engine", *varied(frame.columns)]
    words += ["context", "batch", "concurrency", "req_per_s"]
    return [
        name
        for name in words
        if name in ("gpu", "layout")
        or len({v for each in (frame, *among) if name in each for v in _two(each[name])}) > 1
    ]


def _two(values: pl.Series) -> pl.Series:
    """Two different values, or the only one: a load may have a million."""
    return values.unique().head(2)


def distinct(values: pl.Series) -> list[Any]:
    """The values other than null, sorted."""
    return values.drop_nulls().unique().sort().to_list()


def varied(columns: Iterable[str]) -> list[str]:
    """The columns of varied facts, called by their path as in `engine.scheduler`."""
    return [name for name in columns if "." in name]


def funnel_rows(
    funnel: Funnel, n_results: int, n_feasible: int | None, n_front: int
) -> list[dict[str, Any]]:
    """The steps of the funnel in order: `step`, `kind`, `n`, `text`. All count points, of which
    `n_results` were simulated, at one load or several.
    """
    steps: list[tuple[str, str, int]] = [("candidates", "left", funnel.n_candidates)]
    for kind, counts in (
        ("illegal", funnel.illegal),
        ("wall", funnel.killed),
        ("screen", funnel.screened),
    ):
        ordered = sorted(counts.items(), key=lambda item: -item[1])
        steps += [(f"− {kind}: {name.replace('_', ' ')}", kind, n) for name, n in ordered if n]
    steps.append(("survivors", "left", funnel.n_survivors))
    steps.append(("− dropped by bound", "bound", funnel.n_dropped_by_bound))
    steps.append(("− not simulated", "open", funnel.n_open(n_results)))
    steps.append(("simulated", "left", n_results))
    steps.append(("− failed", "failed", funnel.n_failed))
    if n_feasible is not None:
        steps.append(("keep SLO and constraints", "left", n_feasible))
    steps.append(("on the front", "left", n_front))
    return [
        {"step": step, "kind": kind, "n": n, "text": f"{n:,}"}
        for step, kind, n in steps
        if n or kind == "left"
    ]


def markdown(found: Table) -> str:
    """The table as GitHub Markdown."""
    if not found.rows:
        return ""
    rule = ["--:" if right else ":--" for right in found.numeric]
    lines = [found.heads, rule, *found.rows]
    text = "\n".join("| " + " | ".join(_escaped(c) for c in line) + " |" for line in lines)
    return f"{text}\n\n{found.note}" if found.note else text


def provenance(outcome: Outcome) -> list[tuple[str, str]]:
    """Versions, digests, seeds and the command, as title and text."""
    found = []
    for key, value in outcome.provenance.items():
        text = (
            ", ".join(f"{k} {v}" for k, v in value.items())
            if isinstance(value, Mapping)
            else (str(value))
        )
        if text:
            found.append((key.replace("_", " "), text))
    return found


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def amount(value: float | None, unit: str | None) -> str | None:
    """What a wall asks for or has, with its unit; None where there is nothing."""
    if value is None:
        return None
    known = UNITS.get(unit or "") or next((u for u in UNITS.values() if u.suffix == unit), None)
    return show(value, known) if known else f"{value:,.4g} {_spoken(unit or '')}".strip()


def _spoken(unit: str) -> str:
    """`tok/s` of the ending `tok_per_s` of a column's name."""
    return unit.replace("_per_", "/").replace("_", " ")
