"""The answer box: what to launch, what it gives, how sure that is, and why nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dse.base.units import counted
from dse.catalog import Catalog
from dse.export import EXPORTERS
from dse.report.bands import Bands, bands
from dse.report.causes import causes
from dse.report.fleet import gpus_for, housed
from dse.report.layouts import busy_replicas, family, in_flight, label, sentence
from dse.report.quantities import Quantity, cell, number, quantity
from dse.report.record import Outcome
from dse.report.stopped import nearest, stopped
from dse.report.subject import Subject
from dse.report.sure import cautions, sure

__all__ = ["Answer", "Fact", "answer", "unproved"]

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

    @property
    def aside(self) -> str:
        """Band and note as text behind the number."""
        found = ", ".join(text for text in (self.band, self.note) if text)
        return f" ({found})" if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The recommended point in words and numbers, with titled `reasons`; `headline` says so where
    nothing is feasible. `unproved` is what the search left open, said beside the headline, empty
    where nothing. `cautions` are those of the reasons that a short answer must not leave out,
    `launch` the command that prints how to start it, where there is one.
    """

    feasible: bool
    title: str
    headline: str
    unproved: str = ""
    point_id: str = ""
    facts: tuple[Fact, ...] = ()
    reasons: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cautions: tuple[str, ...] = ()
    launch: str = ""


def answer(outcome: Outcome, subject: Subject) -> Answer:
    """The answer of a study."""
    best = outcome.best
    if best is None:
        return Answer(
            feasible=False,
            title=f"Nothing{' simulated' if outcome.n_open else ''} is feasible",
            headline=_nothing(outcome, subject),
            reasons=(
                ("What stopped them", tuple(stopped(outcome, subject))),
                ("Nearest, and what would do", tuple(nearest(outcome, subject))),
            ),
        )
    detail = outcome.details.get(best["point_id"], {})
    known = bands(best, subject.bounds(), detail)
    rivals = _rivals(outcome, subject, best)
    doubts = tuple(cautions(best, known, subject, rivals))
    return Answer(
        feasible=True,
        title=f"Recommended: {_rule(subject)}{_among(outcome)}",
        headline=sentence(best),
        unproved=unproved(outcome),
        point_id=str(best["point_id"]),
        facts=tuple(_facts(best, subject, outcome.study.catalog, known)),
        reasons=(
            ("What stops it from doing better", tuple(_margins(best, subject, detail))),
            ("How sure", (*doubts, *sure(best, known, _told_below(outcome)))),
            ("Why not another", tuple(_rival(row, best, subject, outcome) for row in rivals)),
        ),
        cautions=doubts,
        launch=_launch(best),
    )


def unproved(outcome: Outcome) -> str:
    """What a search that ended before its proof left open; empty where it left nothing."""
    certificate = outcome.certificate
    if not certificate.get("valid", True) or not (certificate.get("n_left") or outcome.n_open):
        return ""
    left = f"{counted(outcome.n_open, 'survivor')} neither simulated nor ruled out"
    return f"Not proved: {certificate.get('statement') or left}."


def _told_below(outcome: Outcome) -> Mapping[str, Any]:
    """The certificate, where it is not what the answer says first."""
    return {} if unproved(outcome) else outcome.certificate


def _launch(best: Row) -> str:
    engine = str(best.get("engine") or "").partition("@")[0]
    return f"dse export {best['point_id'][:12]} --engine {engine}" if engine in EXPORTERS else ""


def _rule(subject: Subject) -> str:
    """By what the answer was chosen from the front: the study's first objective."""
    extreme = "highest" if subject.objectives[0].direction == "max" else "lowest"
    return f"the {extreme} {subject.first.title}"


def _among(outcome: Outcome) -> str:
    """Of what the answer is the best, where a budget left survivors undecided."""
    n_points = counted(outcome.results.height, "point")
    return f" of {n_points} simulated" if outcome.n_open else ""


def _nothing(outcome: Outcome, subject: Subject) -> str:
    constraints = " and the study's constraints" if outcome.study.constraints else ""
    keeps = f"keeps {subject.slo_text()}{constraints}"
    if outcome.n_open:
        were = "was" if outcome.n_open == 1 else "were"
        return (
            f"None of {counted(outcome.results.height, 'point')} simulated {keeps}; "
            f"{outcome.n_open:,} that {were} not may: the study's budget was spent."
        )
    return f"None of {counted(outcome.funnel.n_candidates, 'candidate')} {keeps}."


def _facts(best: Row, subject: Subject, catalog: Catalog, known: Bands) -> list[Fact]:
    columns = [each.column for each in subject.objectives]
    columns += [subject.y.column, subject.x.column]
    columns += [bound.column for bound in subject.bounds()]
    columns += ["goodput_req_per_s_per_gpu", "output_tok_per_s_per_gpu", "usd_per_mtok_output"]
    quantities = {each.column: each for each in (subject.first, subject.y, subject.x)}
    found = [
        _fact(best, quantities.get(column) or quantity(column), known)
        for column in dict.fromkeys(columns)
        if best.get(column) is not None
    ]
    if subject.target_req_per_s is not None:
        found += _fleet(best, subject.target_req_per_s, catalog, known)
    return found


def _fact(row: Row, each: Quantity, known: Bands) -> Fact:
    band = known.interval(row, each.column)
    price = row.get("usd_per_gpu_hour") if each.column.startswith("usd_per_mtok") else None
    return Fact(
        title=each.title,
        value=number(row[each.column] * each.scale),
        unit=each.unit,
        band=" to ".join(number(end * each.scale) for end in band) if band else "",
        note=f"at {number(price)} USD/GPU/h" if price else "",
    )


def _fleet(best: Row, target: float, catalog: Catalog, known: Bands) -> list[Fact]:
    """GPUs for the target load, at both ends of the goodput's range."""
    gpus = gpus_for(best, target)
    if gpus is None:
        return []
    rate = "goodput_req_per_s_per_gpu"
    ends = [gpus_for({**best, rate: end}, target) for end in known.interval(best, rate) or ()]
    band = " to ".join(f"{end:,}" for end in sorted({end for end in ends if end is not None}))
    note = housed(best, gpus, catalog)
    title = f"GPUs for {target:g} req/s"
    return [Fact(title=title, value=f"{gpus:,}", unit="GPUs", band=band, note=note)]


def _margins(best: Row, subject: Subject, detail: Mapping[str, Any]) -> list[str]:
    """Room to each bound of the SLO, the nearest first, and to each wall."""
    used = []
    for bound in subject.bounds():
        if (value := best.get(bound.column)) is not None:
            room = 100 * (1 - value / bound.limit)
            state = f"{room:.0f}% to spare" if room >= 0 else f"{-room:.0f}% over"
            shown = f"{cell(bound.column, value)} {quantity(bound.column).unit}"
            used.append((value / bound.limit, f"{bound.text}: {shown}, {state}"))
    if (peak := best.get("kv_peak_fraction")) is not None:
        text = f"KV pool: {100 * peak:.0f}% used at its peak"
        if (mean := best.get("kv_mean_fraction")) is not None:
            text += f", {100 * mean:.0f}% on average"
        used.append((peak, text))
    found = [text for _, text in sorted(used, key=lambda each: -each[0])]
    order = detail.get("walls", {}).get("wall_order") or []
    load = in_flight(best)
    for each in order[:3]:
        if each.get("concurrency") is None:
            continue
        at = each["concurrency"] * busy_replicas(best)
        wall = each["wall"]
        requests = "1 request" if at == 1 else f"{number(at)} requests"
        text = f"{wall.replace('_', ' ')} wall at {requests} in flight"
        if load:
            text += f", {number(at / load, 2)}× this load"
        found.append(f"{text}: {_BINDS[wall]}" if wall in _BINDS else text)
    return found


_BINDS = {
    "hbm": "reading weights and KV alone takes the TPOT bound",
    "flop": "arithmetic alone takes the TPOT bound",
    "net": "communication alone takes the TPOT bound",
    "kv_capacity": "the KV pool is full",
}


def _rivals(outcome: Outcome, subject: Subject, best: Row) -> list[Row]:
    """The best feasible point of every other GPU, then of every other layout family."""
    feasible = outcome.results
    if "feasible" in feasible.columns:
        feasible = feasible.filter(pl.col("feasible").fill_null(value=False))
    first = subject.first
    kinds = [name for name in ("gpu", "family") if name in feasible.columns]
    able = feasible.filter(pl.col(first.column).is_finite())
    ranked = able.select(first.column, *kinds).with_row_index("_row")
    ranked = ranked.sort(first.column, descending=first.better == "max", maintain_order=True)
    chosen = ranked.unique(kinds, keep="first", maintain_order=True)["_row"]
    seen = {("gpu", best.get("gpu")), ("family", family(best))}
    found: list[Row] = []
    for row in able[chosen].iter_rows(named=True):
        keys = {("gpu", row.get("gpu")), ("family", family(row))} - seen
        if keys:
            seen |= keys
            found.append(row)
    return found[:MOST_RIVALS]


def _rival(row: Row, best: Row, subject: Subject, outcome: Outcome) -> str:
    """How a runner-up differs, and why it is behind where the report knows."""
    parts = []
    cost = quantity("usd_per_mtok_output")
    for each in (subject.first, subject.x, subject.y, cost):
        mine, other = best.get(each.column), row.get(each.column)
        if mine and other is not None:
            text = _against(each, other, mine)
            if text not in parts:
                parts.append(text)
    why = "; ".join(causes(row, best, subject, outcome.details))
    text = f"{row.get('gpu')}, {label(row)}: {'; '.join(parts)}"
    return f"{text}. Why: {why}" if why else text


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
