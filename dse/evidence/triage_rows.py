"""Batch triage: every measured decode step of a file against its floor interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from dse.base.errors import DseError, UserError
from dse.evidence.case import Case
from dse.evidence.floors import step_asked
from dse.evidence.triage import triage
from dse.evidence.validate_file import read_cases

__all__ = ["diagnoses", "triage_rows"]

_SHOWN = (
    "phase", "measured_s", "t_opt_s", "t_sum_s", "residual", "position", "overlap_quality", "mbu",
    "mfu", "band", "verdict", "binding", "question",
)  # fmt: skip


def triage_rows(path: Path, out: Path | None = None) -> dict[str, Any]:
    """Diagnose each row of `path` that gives a TPOT (or, of a static batch, an E2E latency).

    Returns `verdicts` {verdict: n}, `n_skipped` {reason: n} and the path `out` that was written.
    """
    frame, cases = read_cases(path)
    found = diagnoses(cases)
    rows = pl.DataFrame(list(found), infer_schema_length=None)
    if out is not None:
        if out.exists() and out.samefile(path):
            raise UserError(f"{out} is the input", "write the verdicts elsewhere")
        pl.concat([frame, rows.drop("line")], how="horizontal").write_csv(out)
    done = rows.filter(pl.col("verdict") != "")
    skipped = rows.filter(pl.col("verdict") == "")
    return {
        "verdicts": dict(Counter(done["verdict"].to_list()).most_common()),
        "n_skipped": dict(Counter(skipped["why_not"].to_list()).most_common()),
        "out": str(out) if out is not None else None,
    }


def diagnoses(cases: list[Case]) -> Iterator[dict[str, Any]]:
    """One record a case: the triage of its mean decode step, or `why_not`."""
    nothing = dict.fromkeys((*_SHOWN, "n_requests", "context_tokens")) | {"verdict": ""}
    for case in cases:
        record: dict[str, Any] = {"line": case.key, **nothing, "why_not": ""}
        if case.deployment is None:
            yield record | {"why_not": case.reason}
            continue
        step_s = _step_s(case)
        if step_s is None:
            yield record | {"why_not": "no TPOT is measured"}
            continue
        try:
            yield record | _diagnosed(case, step_s)
        except DseError as error:
            yield record | {"why_not": error.message}


def _diagnosed(case: Case, step_s: float) -> dict[str, Any]:
    assert case.deployment is not None
    asked = step_asked(case)
    found = triage(
        case.deployment,
        step_s,
        n_requests=asked.n_requests,
        context_tokens=asked.context_tokens,
    )
    shown = {name: getattr(found, name) for name in _SHOWN}
    return shown | {"n_requests": asked.n_requests, "context_tokens": asked.context_tokens}


def _step_s(case: Case) -> float | None:
    """Measured seconds of the mean decode step.

    Of a static batch with a long answer, E2E less the floor of its prefill: a prefill of unknown
    efficiency would otherwise be counted as decoding, so that only answers that dominate count.
    """
    if "tpot_s" in case.measured:
        return case.measured["tpot_s"]
    e2e = case.measured.get("e2e_s")
    if e2e is None or case.labels.get("mode") != "static":
        return None
    asked = step_asked(replace(case, measured={}))
    if asked.osl_tokens < asked.isl_tokens:
        return None
    return e2e / asked.osl_tokens
