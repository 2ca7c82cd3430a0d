"""What stopped candidates: every step of an empty front in words, and the nearest misses."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from dse.base.units import counted
from dse.report.layouts import label
from dse.report.quantities import number
from dse.report.record import Outcome
from dse.report.subject import Subject
from dse.report.tables import Table, amount, table, telling
from dse.walls.kinds import WALLS

__all__ = ["near_misses", "nearest", "reason_text", "stopped"]

Row = Mapping[str, Any]
MOST = 3
_UNITS = {"slo_tpot_s": "s", "slo_ttft_s": "s", "kv_pool": "B", "gpu.hbm": "B"}
_UNITS |= {"gpu.hbm_bandwidth": "B/s"}
_WORDS = {
    "slo_tpot_s": "a TPOT bound of",
    "slo_ttft_s": "a TTFT bound of",
    "kv_pool": "a KV pool of",
    "gpu.hbm": "HBM of",
    "gpu.hbm_bandwidth": "HBM at",
}
ATTAINMENT, LEGALITY = "slo_attainment", "legality"
"""Reasons of a near miss that are no wall: simulated but late, and refused by every engine."""


def stopped(outcome: Outcome, about: Subject) -> list[str]:
    """What took the candidates, step by step: rules, walls, screens, the simulator's verdict."""
    funnel = outcome.funnel
    found = []
    if n := sum(funnel.illegal.values()):
        found.append(f"{n:,} of {funnel.n_candidates:,} no engine could start: {_rules(outcome)}.")
    if n := sum(funnel.killed.values()):
        found.append(f"{n:,} are beyond a wall: {_walls(funnel.killed)}.")
    for text, n in funnel.screened.items():
        if n:
            found.append(f"{n:,} were cut by the study's own screen {text}.")
    if outcome.results.height:
        found.append(_simulated(outcome, about))
    if funnel.n_failed:
        failed = counted(funnel.n_failed, "simulation")
        found.append(f"{failed} failed; `dse query 'SELECT error FROM result'` says why.")
    return found or ["The space has no candidate."]


def nearest(outcome: Outcome, about: Subject) -> list[str]:
    """The nearest misses in words, the best of each reason, with what would make it feasible."""
    found: dict[str, str] = {}
    for row in outcome.near_misses.iter_rows(named=True):
        found.setdefault(str(row["reason"]), _miss(row, about))
    return list(found.values())[:MOST]


def near_misses(frame: pl.DataFrame, among: pl.DataFrame) -> Table:
    """The points that came nearest to being feasible, with what would make them so; they stand
    `among` the results.
    """
    if frame.is_empty():
        return table(frame, [])
    told = [_told(row) for row in frame.iter_rows(named=True)]
    names = ("what", "needs", "has", "over", "would")
    columns = [
        pl.Series(name, values, dtype=pl.String)
        for name, values in zip(names, zip(*told, strict=True), strict=True)
    ]
    heads = {"what": "what stops it", "over": "over by", "would": "what would make it feasible"}
    return table(frame.with_columns(columns), [*telling(frame, among), *names], heads)


def _told(row: Row) -> tuple[str | None, ...]:
    """What stops a point, what it needs and has, by how much that is too much, what would do."""
    late = row["reason"] == ATTAINMENT
    over = None if row["margin"] is None else f"{number(100 * row['margin'], 2)}%"
    if late:
        needs, has = (f"{100 * row[name]:.4g}% of requests" for name in ("demand", "limit"))
        return "too few keep the SLO", needs, has, over, "a lower load, or a looser SLO"
    needs_has = (amount(row[name], row["unit"]) for name in ("demand", "limit"))
    remedy = " or ".join(map(_change, (row["remedy"] or "").split(" or ")))
    return str(row["reason"]).replace("_", " "), *needs_has, over, remedy


def reason_text(reason: str) -> str:
    """Why a point is no answer, in words: what its wall says, or that too few requests are good."""
    if reason == ATTAINMENT:
        return "too few requests keep the SLO"
    if reason == LEGALITY:
        return "no engine could start it"
    return WALLS[reason].says if reason in WALLS else reason.replace("_", " ")


def _miss(row: Row, about: Subject) -> str:
    gpus = f"{row['n_gpus']} × " if row.get("n_gpus") else ""
    text = f"{label(row)} on {gpus}{row.get('gpu')}"
    if row.get("precision"):
        text += f" ({row['precision']})"
    if row.get("concurrency"):
        text += f" with {row['concurrency']:,} in flight"
    if row["reason"] == ATTAINMENT:
        share = f"{number(100 * row['limit'])}% of its requests keep the SLO"
        wanted = f"{100 * about.slo.attainment:g}% must"
        return f"{text}: {share}, {wanted}. Lower the load, or ask for less."
    if row["reason"] == LEGALITY:
        return f"{text}: {row.get('remedy') or 'no engine could start it'}."
    need, limit = (amount(row[name], row["unit"]) for name in ("demand", "limit"))
    by = f"; needs {need}, has {limit}, {number(100 * row['margin'])}% over" if need else ""
    return f"{text}: {reason_text(row['reason'])}{by}.{_would(row.get('remedy') or '')}"


def _would(remedy: str) -> str:
    """What would make a point feasible, amounts with their units."""
    if "=" not in remedy:
        return f" {remedy[:1].upper()}{remedy[1:]}." if remedy else ""
    return f" It would do with {' or '.join(map(_change, remedy.split(' or ')))}."


def _change(text: str) -> str:
    name, _, value = text.partition("=")
    unit = _UNITS.get(name)
    try:
        return f"{_WORDS.get(name, name)} {amount(float(value), unit)}" if unit else text
    except ValueError:
        return text


def _rules(outcome: Outcome) -> str:
    """Each broken rule with its count, and the numbers of the first layout that breaks it."""
    first = {
        str(row.get("rule")): str(row["remedy"])
        for row in outcome.near_misses.iter_rows(named=True)
        if row["reason"] == LEGALITY and row.get("rule")
    }
    ranked = sorted(outcome.funnel.illegal.items(), key=lambda item: -item[1])
    return "; ".join(
        f"{rule.replace('_', ' ')} {n:,}" + (f" ({first[rule]})" if rule in first else "")
        for rule, n in ranked[:MOST]
    )


def _walls(killed: Mapping[str, int]) -> str:
    ranked = sorted(killed.items(), key=lambda item: -item[1])[:MOST]
    return "; ".join(f"{kind.replace('_', ' ')} {n:,} ({reason_text(kind)})" for kind, n in ranked)


def _simulated(outcome: Outcome, about: Subject) -> str:
    results = outcome.results
    text = f"{results.height:,} were simulated"
    n_late = 0
    if "slo_attainment" in results.columns:
        n_late = results.filter(pl.col("slo_attainment") < about.slo.attainment).height
    if n_late:
        most = number(100 * results.select(pl.col("slo_attainment").max()).item())
        text += f"; {n_late:,} keep the SLO for too few of their requests, {most}% at best"
    if results.height > n_late:
        conditions = " and ".join(each.text for each in outcome.study.constraints)
        text += f"; {results.height - n_late:,} break the study's constraints {conditions}".rstrip()
    return text + "."
