"""The answer in a terminal: the best deployment in words, the front, the funnel, the report."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dse.base.units import counted
from dse.report.answer import Answer, answer, unproved
from dse.report.drawn import with_words
from dse.report.record import Funnel, Outcome
from dse.report.subject import Subject, subject
from dse.report.tables import Table, front_table, varied

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["grid", "summary"]

MOST_ROWS = 10
_PADDING = 3


def summary(outcome: Outcome, width: int = 100, *, report: Path | None = None) -> "RenderableType":
    """What `dse run` and `dse show` end with, for a terminal of `width` columns.

    The front has at most ten rows, and as many columns as fit whole; `report` is where the page is.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    outcome = replace(
        outcome,
        results=with_words(outcome.results),
        front=with_words(outcome.front),
        near_misses=with_words(outcome.near_misses),
    )
    about = subject(outcome)
    best = answer(outcome, about)
    parts: list[RenderableType] = [Text(about.question, style="bold"), *_answer(best, about)]
    if best.feasible:
        parts.append(Padding(_front(outcome, about, width), (1, 0, 0, 0)))
    parts.append(Padding(Text(_funnel_line(outcome)), (1, 0, 0, 0)))
    statement = outcome.certificate.get("statement")
    if statement and outcome.funnel.n_survivors and not (best.feasible and unproved(outcome)):
        style = "" if outcome.certificate.get("valid", True) else "bold red"
        parts.append(Text(f"Search: {statement}.", style=style))
    parts += [Text(note, style="yellow") for note in outcome.notes]
    if report is not None:
        parts.append(Text(f"Report: {report}", overflow="fold", no_wrap=False))
    return Group(*parts)


def _funnel_line(outcome: Outcome) -> str:
    """The funnel in a sentence; the three walls that removed most by name."""
    funnel = outcome.funnel
    removed = {**funnel.illegal, **funnel.killed}
    steps = [counted(funnel.n_candidates, "candidate")]
    n_illegal, n_killed = sum(funnel.illegal.values()), sum(funnel.killed.values())
    if removed:
        top = sorted(removed, key=lambda name: -removed[name])[:3]
        named = ", ".join(f"{name.replace('_', ' ')} {removed[name]:,}" for name in top)
        steps.append(f"{n_illegal:,} illegal and {n_killed:,} beyond a wall ({named})")
    if any(funnel.screened.values()):
        steps.append(f"{sum(funnel.screened.values()):,} screened")
    steps.append(counted(funnel.n_survivors, "survivor"))
    if funnel.n_dropped_by_bound:
        steps.append(f"{funnel.n_dropped_by_bound:,} dropped by bound")
    if outcome.n_open:
        steps.append(f"{outcome.n_open:,} not simulated")
    steps.append(_simulated(funnel, outcome.results.height))
    if funnel.n_failed:
        steps.append(f"{funnel.n_failed:,} failed")
    return " → ".join([*steps, f"{outcome.front.height:,} on the front"])


def _simulated(funnel: Funnel, n_points: int) -> str:
    """Simulated points; where one takes several simulations, for loads or seeds, those as well."""
    n_runs = funnel.n_simulated + funnel.n_reused
    asides = [f"{n_runs:,} loads and seeds"] if n_runs > n_points else []
    if funnel.n_reused:
        asides.append(f"{funnel.n_reused:,} of them from the store")
    return f"{n_points:,} simulated" + (f" ({', '.join(asides)})" if asides else "")


def _answer(best: Answer, about: Subject) -> "Iterable[RenderableType]":
    from rich.padding import Padding
    from rich.text import Text

    if not best.feasible:
        yield Text(best.headline, style="bold red")
        for title, lines in best.reasons:
            if lines:
                yield Text(f"\n{title}:")
                yield from (Padding(Text(f"- {line}"), (0, 0, 0, 2)) for line in lines)
        return
    yield Text(best.headline, style="bold green")
    if best.unproved:
        yield Text(f"! {best.unproved}", style="bold yellow")
    facts = [f"{fact.title} {fact.value} {fact.unit}".strip() + fact.aside for fact in best.facts]
    yield Text(f"{best.title} under {about.slo_text()}", style="dim")
    yield Text(" · ".join(facts))
    yield from (Text(f"! {text}", style="yellow") for text in best.cautions)
    if best.launch:
        yield Text(f"Launch: {best.launch}", style="dim")


def _front(outcome: Outcome, about: Subject, width: int) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    whole = front_table(outcome.front, about, outcome.results)
    shown = replace(whole, rows=whole.rows[:MOST_ROWS])
    more = outcome.front.height - MOST_ROWS
    first = ["model", "gpu", "layout", *varied(whole.columns)]
    first += [each.column for each in about.objectives]
    first += [each.column for each in about.bounds()]
    parts = [grid(shown, width, [*first, "concurrency", "req_per_s"])]
    if more > 0:
        parts.append(Text(f"  … and {more:,} more on the front", style="dim"))
    return Group(*parts)


def grid(found: Table, width: int, first: Sequence[str] = ()) -> "RenderableType":
    """A table for a terminal: as many of its columns as fit whole into `width`, `first` before
    others. Heads break at their words where not all columns fit otherwise.
    """
    from rich import box
    from rich.table import Table as Grid

    heads = [_split(head) for head in found.heads]
    kept = _fitting(found, heads, width, first)
    if len(kept) < len(heads):
        heads = [_broken(lines, *_cells(found, i)) for i, lines in enumerate(heads)]
        kept = _fitting(found, heads, width, first)
    shown = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index in kept:
        justify: Literal["left", "right"] = "right" if found.numeric[index] else "left"
        title = "\n".join(heads[index])
        shown.add_column(title, justify=justify, no_wrap=True, vertical="bottom")
    for row in found.rows:
        shown.add_row(*(row[index] for index in kept))
    return shown


def _fitting(
    found: Table, heads: Sequence[Sequence[str]], width: int, first: Sequence[str]
) -> list[int]:
    """The columns that fit into `width` without a cut, in their order; those named come first, as
    they are named.
    """
    order = {name: place for place, name in enumerate(first)}
    ranked = sorted(range(len(heads)), key=lambda i: order.get(found.columns[i], len(order)))
    kept: list[int] = []
    used = 0
    for index in ranked:
        used += max(map(len, (*heads[index], *_cells(found, index)))) + _PADDING
        if used - _PADDING > width and kept:
            break
        kept.append(index)
    return sorted(kept)


def _cells(found: Table, index: int) -> list[str]:
    return [row[index] for row in found.rows]


def _split(head: str) -> tuple[str, ...]:
    """A head's words and its unit, a line each."""
    words, _, unit = head.partition(" (")
    return (words, unit.removesuffix(")")) if unit else (words,)


def _broken(lines: Sequence[str], *cells: str) -> tuple[str, ...]:
    """A head's words over lines no wider than its unit, its cells or its longest word."""
    from textwrap import wrap

    words, *unit = lines
    widest = max(map(len, (*unit, *cells, *words.split())))
    return (*wrap(words, widest), *unit)
