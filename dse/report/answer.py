"""The answer box: what to launch, what it gives, how sure that is, and why nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dse.catalog import Catalog
from dse.report.fleet import gpus_for, housed
from dse.report.layouts import busy_replicas, family, label, sentence
from dse.report.quantities import Quantity, cell, number, quantity
from dse.report.record import Outcome
from dse.report.stopped import nearest, stopped
from dse.report.subject import Subject

__all__ = ["Answer", "Fact", "answer"]

Row = Mapping[str, Any]
MOST_RIVALS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number of the answer; `band` is its range where a validation gives one."""

    title: str
    value: str
    unit: str = ""
    band: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The recommended point in words and numbers, with titled `reasons`; `headline` says so where
    nothing is feasible.
    """

    feasible: bool
    title: str
    headline: str
    point_id: str = ""
    facts: tuple[Fact, ...] = ()
    reasons: tuple[tuple[str, tuple[str, ...]], ...] = ()


def answer(outcome: Outcome, subject: Subject) -> Answer:
    """The answer of a study."""
    best = outcome.best
    if best is None:
        return Answer(
            feasible=False,
            title="Nothing is feasible",
            headline=_nothing(outcome, subject),
            reasons=(
                ("What stopped them", tuple(stopped(outcome, subject))),
                ("Nearest, and what would do", tuple(nearest(outcome, subject))),
            ),
        )
    return Answer(
        feasible=True,
        title=f"Recommended: {_rule(subject)}",
        headline=sentence(best),
        point_id=str(best["point_id"]),
        facts=tuple(_facts(best, subject, outcome.study.catalog)),
        reasons=(
            ("Margins", tuple(_margins(best, subject, outcome.details.get(best["point_id"], {})))),
            ("How sure", tuple(_sure(best, outcome))),
            ("Why not another", tuple(_rivals(outcome, subject, best))),
        ),
    )


def _rule(subject: Subject) -> str:
    """By what the answer was chosen from the front: the study's first objective."""
    extreme = "highest" if subject.objectives[0].direction == "max" else "lowest"
    return f"the {extreme} {subject.first.title}"


def _nothing(outcome: Outcome, subject: Subject) -> str:
    n = outcome.funnel.n_candidates
    constraints = " and the study's constraints" if outcome.study.constraints else ""
    return f"None of {n:,} candidates keeps {subject.slo_text()}{constraints}."


def _facts(best: Row, subject: Subject, catalog: Catalog) -> list[Fact]:
    columns = [subject.y.column, subject.x.column]
    columns += [bound.column for bound in subject.bounds()]
    columns += ["goodput_req_per_s_per_gpu", "output_tok_per_s_per_gpu", "usd_per_mtok_output"]
    quantities = {each.column: each for each in (subject.y, subject.x)}
    found = [
        _fact(best, quantities.get(column) or quantity(column))
        for column in dict.fromkeys(columns)
        if best.get(column) is not None
    ]
    target = subject.target_req_per_s
    if target is not None and (gpus := gpus_for(best, target)) is not None:
        note = housed(best, gpus, catalog)
        found.append(
            Fact(title=f"GPUs for {target:g} req/s", value=f"{gpus:,}", unit="GPUs", note=note)
        )
    return found


def _fact(row: Row, each: Quantity) -> Fact:
    low, high = row.get(f"lo_{each.column}"), row.get(f"hi_{each.column}")
    band = ""
    if low is not None and high is not None:
        band = f"{number(low * each.scale)} to {number(high * each.scale)}"
    value = number(row[each.column] * each.scale)
    return Fact(title=each.title, value=value, unit=each.unit, band=band)


def _margins(best: Row, subject: Subject, detail: Mapping[str, Any]) -> list[str]:
    found = []
    for bound in subject.bounds():
        value = best.get(bound.column)
        if value is not None:
            room = 100 * (1 - value / bound.limit)
            state = f"{room:.0f}% to spare" if room >= 0 else f"{-room:.0f}% over"
            unit = quantity(bound.column).unit
            found.append(f"{bound.text}: {cell(bound.column, value)} {unit}, {state}")
    if (peak := best.get("kv_peak_fraction")) is not None:
        found.append(f"KV pool: {100 * peak:.0f}% used at its peak")
    order = detail.get("walls", {}).get("wall_order") or []
    concurrency = best.get("concurrency")
    for each in order[:3]:
        if each.get("concurrency") is None:
            continue
        at = each["concurrency"] * busy_replicas(best)
        text = f"{each['wall'].replace('_', ' ')} wall at {number(at)} requests in flight"
        if concurrency:
            text += f", {number(at / concurrency, 2)}× this load"
        found.append(text)
    return found


def _sure(best: Row, outcome: Outcome) -> list[str]:
    found = []
    banded = [column for column in best if column.startswith("lo_") and best[column] is not None]
    if banded:
        ranges = [
            f"{quantity(c.removeprefix('lo_')).title} {cell(c, best[c])} to "
            f"{cell(c, best['hi_' + c.removeprefix('lo_')])} {quantity(c).unit}"
            for c in banded
            if best.get("hi_" + c.removeprefix("lo_")) is not None
        ]
        found.append(f"By validation against measurements: {'; '.join(ranges)}.")
    else:
        found.append(
            "No validation covers this GPU and regime: the numbers carry no error band, and "
            "differences of a few per cent should not decide."
        )
    if best.get("is_tie"):
        found.append("Its replicates overlap those of another member of the front: a tie.")
    if statement := outcome.certificate.get("statement"):
        found.append(f"Search: {statement}.")
    return found


def _rivals(outcome: Outcome, subject: Subject, best: Row) -> list[str]:
    """The best feasible point of every other GPU, then of every other layout family."""
    feasible = outcome.results
    if "feasible" in feasible.columns:
        feasible = feasible.filter(pl.col("feasible").fill_null(value=False))
    first = subject.first
    ranked = feasible.filter(pl.col(first.column).is_finite()).sort(
        first.column, descending=first.better == "max", maintain_order=True
    )
    seen = {("gpu", best.get("gpu")), ("family", family(best))}
    found = []
    for row in ranked.unique(
        [c for c in ("gpu", "family") if c in ranked.columns], keep="first", maintain_order=True
    ).iter_rows(named=True):
        keys = {("gpu", row.get("gpu")), ("family", family(row))} - seen
        if keys:
            seen |= keys
            found.append(_rival(row, best, subject))
    return found[:MOST_RIVALS]


def _rival(row: Row, best: Row, subject: Subject) -> str:
    parts = []
    cost = quantity("usd_per_mtok_output")
    for each in (subject.first, subject.x, subject.y, cost):
        mine, other = best.get(each.column), row.get(each.column)
        if mine and other is not None:
            text = _against(each, other, mine)
            if text not in parts:
                parts.append(text)
    return f"{row.get('gpu')}, {label(row)}: {'; '.join(parts)}"


def _against(each: Quantity, other: float, mine: float) -> str:
    change = 100 * (other / mine - 1)
    value = f"{number(other * each.scale)} {each.unit}".strip()
    if abs(change) < 0.5:
        return f"{each.title} {value}, the same"
    if change >= 100:
        return f"{each.title} {value}, {number(other / mine, 2)}× as much"
    worse = (change < 0) == (each.better == "max") if each.better else False
    word = "worse" if worse else "better"
    return f"{each.title} {value}, {abs(change):.0f}% {word}"
