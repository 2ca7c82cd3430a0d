"""`dse run`: answer a study and write its report."""

import shlex
import sys
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dse.base.errors import DseError, InfeasibleError, UserError
from dse.cli._output import Interrupted, Json, body, console, emit_json, fail
from dse.cli.check import Settings

if TYPE_CHECKING:
    from dse.pipeline.run import Means, Ran
    from dse.report.record import Outcome
    from dse.store import Store
    from dse.study import Study

MOST_ROWS = 200
DIGITS = 8


def run(
    study: Path,
    /,
    *,
    store: Path | None = None,
    out: Path | None = None,
    workers: str = "auto",
    ray: str | None = None,
    scenario: str | None = None,
    set_: Settings = (),
    retry: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    quiet: bool = False,
    json: Json = False,
) -> int:
    """Answer a study: enumerate, prune, simulate what is new, keep it all, write the report.

    Parameters
    ----------
    study
        The YAML file of a study.
    store
        The DuckDB file that remembers results (default: dse.duckdb of the project).
    out
        The folder of the report (default: reports/NAME; with --set or --scenario
        reports/NAME-DIGEST, so that the plain answer stays).
    workers
        auto, 0 (this process) or N local Ray workers.
    ray
        The address of a Ray cluster, or auto.
    scenario
        The scenario of the study whose overrides are laid on.
    retry
        Statuses of stored results that are simulated again: failed, error, crashed.
    quiet
        No progress on stderr.
    """
    from dse.pipeline.api import store_path
    from dse.pipeline.run import Means
    from dse.report.page import write
    from dse.store import Store
    from dse.study import load_study

    asked = load_study(study, scenario=scenario, set_=set_)
    folder = out or report_folder(study, asked, is_changed=bool(scenario or set_))
    _require_writable(folder)
    where = store or store_path(study)
    means = Means(workers=workers, ray=ray, retry=_statuses(retry))
    with Store.open(where) as opened:
        try:
            ran = _watched(asked, opened, means, quiet=quiet or json)
        except KeyboardInterrupt:
            opened.flush()
            return _interrupted(where, json=json)
    files = write(ran.outcome, folder)
    return tell(ran, files[0] if files else folder, json=json)


def report_folder(study: Path, asked: "Study", *, is_changed: bool) -> Path:
    """`reports/NAME` of the project that the study belongs to, with the digest of what was `asked`
    where it is not what the file says.
    """
    from dse.pipeline.api import project_of

    name = f"{study.stem}-{asked.study_id[:DIGITS]}" if is_changed else study.stem
    return project_of(study) / "reports" / name


def tell(ran: "Ran", page: Path | None, *, json: bool) -> int:
    """Print what a run found; its exit code: 0, 1 for a void certificate, 3 for an empty front."""
    from dse.report.terminal import summary

    outcome = ran.outcome
    failure = _failure(outcome)
    if json:
        told = {} if failure is None else {"error": body(failure), "faults": []}
        emit_json({**document(ran, page), **told})
    else:
        out = console()
        out.print(summary(outcome, out.width, report=page))
    if failure is None:
        return 0
    sys.stderr.write(f"dse: {failure.message}\n")
    return failure.exit_code


def _failure(outcome: "Outcome") -> DseError | None:
    """What is wrong with an answer, if anything."""
    from dse.base.units import counted

    if not outcome.certificate.get("valid", True):
        return DseError("a result beat its own bound: the certificate is void (our defect)")
    if not outcome.front.height and outcome.n_open:
        return InfeasibleError(
            "nothing that was simulated meets the SLO and the constraints; "
            f"the budget was spent with {counted(outcome.n_open, 'survivor')} not simulated",
            "raise search.budget: what was simulated is stored",
        )
    if not outcome.front.height:
        return InfeasibleError(
            "nothing meets the SLO and the constraints; near misses are listed",
            "change what a near miss names; neither SLO nor constraints were relaxed",
        )
    return None


def _interrupted(store: Path, *, json: bool) -> int:
    again = f"resume with: {shlex.join(['dse', *sys.argv[1:]])}"
    return fail(Interrupted(f"interrupted; what was simulated is in {store}", again), as_json=json)


def document(ran: "Ran", page: Path | None) -> dict[str, Any]:
    """The answer as the JSON document of the command line's contract."""
    outcome, funnel = ran.outcome, ran.outcome.funnel
    front = [_slim(row) for row in outcome.front.head(MOST_ROWS).iter_rows(named=True)]
    return {
        "study": outcome.study.name,
        "question": outcome.study.question,
        "n_candidates": funnel.n_candidates,
        "illegal": dict(funnel.illegal),
        "killed": {**funnel.illegal, **funnel.killed},
        "screened": dict(funnel.screened),
        "n_survivors": funnel.n_survivors,
        "n_simulated": funnel.n_simulated,
        "n_reused": funnel.n_reused,
        "n_dropped_by_bound": funnel.n_dropped_by_bound,
        "n_failed": funnel.n_failed,
        "front": front,
        "best": front[0] if front else None,
        "near_misses": [_slim(row) for row in outcome.near_misses.iter_rows(named=True)],
        "certificate": _certificate(outcome.certificate),
        "notes": list(outcome.notes),
        "report": None if page is None else str(page),
        "store": str(ran.store),
        "run": ran.run_id,
        "cpu_s": ran.cpu_s,
        "wall_s": ran.wall_s,
        "peak_rss_bytes": ran.peak_rss_bytes,
    }


def _certificate(whole: Mapping[str, Any]) -> dict[str, Any]:
    """What a search proved; `n_left` undecided points beat the front by `gap` at most (null: no
    limit is known).
    """
    named = ("valid", "statement", "method", "tolerance", "n_left")
    return {key: whole[key] for key in named} | {
        "gap": whole["gap"] if isfinite(whole["gap"]) else None
    }


def _slim(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what it does not have and what only the store needs."""
    hidden = {"point", "structure", "latency_sketch", "kernels_id"}
    return {key: value for key, value in row.items() if value is not None and key not in hidden}


def _statuses(retry: tuple[str, ...]) -> tuple[str, ...]:
    known = {"failed": ("error", "crashed"), "error": ("error",), "crashed": ("crashed",)}
    unknown = [each for each in retry if each not in known]
    if unknown:
        raise UserError(f"--retry {unknown[0]}: not a status", "failed, error or crashed")
    return tuple(status for each in retry for status in known[each])


def _require_writable(folder: Path) -> None:
    """Refuse a report folder before hours of work, not after."""
    from tempfile import TemporaryFile

    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not existing.is_dir():
        raise UserError(f"{existing} is not a folder", "give another --out")
    try:
        with TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{folder} cannot be written: {reason}", "give another --out") from error


def _watched(study: "Study", store: "Store", means: "Means", *, quiet: bool) -> "Ran":
    """Run a study with progress on stderr: a live line in a terminal, plain lines elsewhere."""
    from dataclasses import replace

    from dse.cli._progress import progress
    from dse.pipeline.run import run as answer

    command = shlex.join(["dse", *sys.argv[1:]])
    with progress(quiet=quiet) as watch:
        return answer(study, store=store, means=replace(means, watch=watch), command=command)
