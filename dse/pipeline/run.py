"""run(study): the table of contents of the program."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl

from dse.base.errors import StoreError
from dse.pipeline.answering import Recall, answer_study
from dse.pipeline.judged import judge_space
from dse.pipeline.origin import provenance
from dse.pipeline.sifted import sift
from dse.report.record import Outcome
from dse.run.pool import Pool, open_pool
from dse.search import Answer, Round
from dse.store import Store
from dse.study import Study
from dse.study.predict import SHARES, predicted_s
from dse.study.vast import is_vast

__all__ = ["Means", "Ran", "Watch", "run"]

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Who is told how a run gets on: `judged` of survivors, `round` after each round of the search,
    `done` of each batch of results.
    """

    judged: Callable[[int, int], None] | None = None
    round: Callable[[Round], None] | None = None
    done: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How a run is carried out, none of which changes its answer: `workers` and `ray` as on the
    command line, or a `pool` in their place; statuses of stored results to `retry`; who `watch`es.
    """

    workers: str | int = "auto"
    ray: str | None = None
    pool: Pool | None = None
    retry: tuple[str, ...] = ()
    watch: Watch = Watch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """An outcome and what it cost."""

    outcome: Outcome
    answer: Answer
    run_id: str
    cpu_s: float
    wall_s: float
    peak_rss_bytes: float
    store: Path = field(default_factory=Path)


EASY = Means()


def run(
    study: Study,
    *,
    store: Store,
    means: Means = EASY,
    command: str = "",
    record: bool = True,
    recall: Recall | None = None,
) -> Ran:
    """Answer `study`: judge every point, simulate what the search asks for and is new, find the
    front, and leave all of it in `store` (but for the run itself unless `record`). What `recall`
    gives, if anything, is not searched for again.
    Raises `StoreError` and `UserError`; a point that fails is a row, and an empty front an outcome.
    """
    started, cpu_before, wall_before = datetime.now(UTC), _cpu_s(), time.perf_counter()
    run_id = uuid4().hex
    origin = provenance(study, command)
    begun = _record(study, run_id, started, origin)
    with _begun(store, study, begun) if record else nullcontext():
        outcome, found = _answered(study, store, means, origin, recall)
    ran = Ran(
        outcome=outcome,
        answer=found,
        run_id=run_id,
        cpu_s=_cpu_s() - cpu_before,
        wall_s=time.perf_counter() - wall_before,
        peak_rss_bytes=float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB),
        store=store.path,
    )
    store.flush()
    if record:
        _remember(store, ran, begun)
    return ran


def _answered(
    study: Study, store: Store, means: Means, origin: dict[str, Any], recall: Recall | None
) -> tuple[Outcome, Answer]:
    judged = sift(study) if is_vast(study) else judge_space(study)
    if means.watch.judged is not None:
        means.watch.judged(judged.n_candidates, judged.n_survivors)
    seconds = _predicted_s(study, judged.survivors)
    opened = open_pool(means.workers, address=means.ray, predicted_s=seconds)
    with nullcontext(means.pool) if means.pool is not None else opened as pool:
        outcome, found = answer_study(
            study,
            judged,
            store=store,
            pool=pool,
            on_round=means.watch.round,
            told=means.watch.done,
            retry=means.retry,
            recall=recall,
        )
    return replace(outcome, provenance=origin), found


@contextmanager
def _begun(store: Store, study: Study, begun: dict[str, Any]) -> Iterator[None]:
    """Record that a run is under way, and how it ended if that is not with an answer."""
    store.replace(_study_row(study), "study")
    store.replace(pl.DataFrame([begun | {"status": "running"}]), "run")
    try:
        yield
    except StoreError:
        raise  # nothing can be recorded
    except BaseException as error:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        store.replace(pl.DataFrame([begun | {"status": status}]), "run")
        raise


def _predicted_s(study: Study, survivors: pl.DataFrame) -> float:
    """The most CPU seconds that simulating survivors is expected to take."""
    if survivors.is_empty():
        return 0.0
    share = SHARES[study.search.method][1]
    each = survivors.select(predicted_s(study))["predicted_s"].sum()
    return share * float(each) * study.search.seeds


def _cpu_s() -> float:
    """CPU seconds of this process and the children that have ended."""
    parts = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in parts]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _study_row(study: Study) -> pl.DataFrame:
    row = {
        "study_id": study.study_id,
        "name": study.name,
        "question": study.question,
        "path": str(study.path),
        "text": study.text,
    }
    return pl.DataFrame([row])


def _record(study: Study, run_id: str, started: datetime, origin: dict[str, Any]) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "study_id": study.study_id,
        "started_at": started.replace(tzinfo=None),
        "arguments": origin.get("command", ""),
        "versions": json.dumps(origin.get("versions", {})),
        "git": origin.get("git", ""),
        "catalog_digest": origin.get("catalog", ""),
    }


def _remember(store: Store, ran: Ran, record: dict[str, Any]) -> None:
    """Write the run's record, its answer, its certificate and its nearest misses."""
    outcome, found = ran.outcome, ran.answer
    funnel, run_id = outcome.funnel, ran.run_id
    done = record | {
        "ended_at": datetime.now(UTC).replace(tzinfo=None),
        "status": "done",
        "n_candidates": funnel.n_candidates,
        "n_survivors": funnel.n_survivors,
        "n_simulated": funnel.n_simulated,
        "n_reused": funnel.n_reused,
        "n_dropped_by_bound": funnel.n_dropped_by_bound,
        "n_failed": funnel.n_failed,
        "cpu_s": ran.cpu_s,
        "wall_s": ran.wall_s,
        "peak_rss_bytes": ran.peak_rss_bytes,
        "record": json.dumps({"columns": outcome.results.columns}),
    }
    store.replace(pl.DataFrame([done]), "run")
    results = outcome.results
    if results.height:
        rows = results.unique("point_id", keep="first", maintain_order=True)
        store.answer(rows.with_columns(run_id=pl.lit(run_id)))
    text = json.dumps(found.certificate.record(), default=str)
    row = {"run_id": run_id, "valid": found.certificate.valid, "text": text}
    store.replace(pl.DataFrame([row]), "certificate")
    counts = [
        {"run_id": run_id, "kind": kind, "name": name, "axis": "", "value": "", "n_points": n}
        for kind, group in (
            ("legality", funnel.illegal),
            ("wall", funnel.killed),
            ("screen", funnel.screened),
        )
        for name, n in group.items()
    ]
    if counts:
        store.replace(pl.DataFrame(counts), "verdict")
    misses = outcome.near_misses
    if "point_id" in misses.columns:
        renamed = misses.drop_nulls("point_id").select(
            "point_id", "demand", "limit", "unit", "margin",
            killed_by="reason", nearest_feasible="remedy", run_id=pl.lit(run_id),
        )  # fmt: skip
        store.replace(renamed.unique(["point_id", "killed_by"], keep="first"), "near_miss")
    if found.history.height:
        store.replace(found.history.with_columns(run_id=pl.lit(run_id)), "hypervolume")
