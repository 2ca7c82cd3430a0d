"""The answer that a study's last run wrote, if it still stands."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from dse.pipeline.answering import keys_of
from dse.pipeline.judged import Judged
from dse.pipeline.origin import catalog_digest
from dse.run.evaluate import Evaluator
from dse.search import Answer, Certificate, Round, Violation
from dse.search.gather import best_first
from dse.search.ledger import PROOF_TYPES
from dse.store import Store
from dse.study import Study

__all__ = ["checked", "recalled"]

# Rows whose identity is computed again, besides the front: a digest of each of a million takes
# minutes, and what changes identities or physics changes those of whole GPUs, models and branches.
N_CHECKED = 200
_KINDS = ("model", "gpu", "engine", "branch")


def recalled(study: Study, store: Store, judged: Judged, evaluator: Evaluator) -> Answer | None:
    """The last run's answer; None where there is none, or where study, catalog, identities or
    physics have changed since. Its frame has `point_id` and `physics_id`; it has no proofs.
    """
    last = _last_run(study, store)
    if last is None:
        return None
    columns = json.loads(last["record"])["columns"]
    certificate = _certificate(json.loads(last["text"]))
    frame = _frame(store, last["run_id"], columns)
    if frame is None or frame.height != certificate.n_simulated:
        return None  # equal points share a row
    if not _stands(frame, judged, evaluator):
        return None
    evaluator.n_reused = frame.height * evaluator.replicates
    return Answer(
        frame=frame,
        front=best_first(frame, study.parts),
        certificate=certificate,
        proofs=PROOF_TYPES.to_frame(),
        history=pl.DataFrame(schema={"n_simulated": pl.Int64, "hypervolume": pl.Float64}),
    )


def _last_run(study: Study, store: Store) -> dict[str, Any] | None:
    rows = store.query(
        "SELECT run_id, record, text FROM run JOIN certificate USING (run_id) "
        f"WHERE study_id = '{study.study_id}' AND status = 'done' AND record IS NOT NULL "
        f"AND catalog_digest = '{catalog_digest(study.catalog)}' "
        "ORDER BY started_at DESC, run_id LIMIT 1"
    )
    return rows.row(0, named=True) if rows.height else None


def _frame(store: Store, run_id: str, columns: list[str]) -> pl.DataFrame | None:
    """The run's rows by `point`, with the columns that they were written with."""
    rows = store.query(f"FROM answer WHERE run_id = '{run_id}'")
    if rows.is_empty():
        return None
    absent = [name for name in columns if name not in rows.columns]
    frame = rows.with_columns(pl.lit(None).alias(name) for name in absent).select(columns)
    return frame if frame["point"].is_sorted() else frame.sort("point")


def checked(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows whose identity and physics are computed again: of the front, of every kind, and some
    evenly spread.
    """
    kinds = [name for name in _KINDS if name in frame.columns]
    parts = [
        frame.filter("on_front").head(N_CHECKED),
        frame.unique(kinds, keep="first", maintain_order=True).head(N_CHECKED),
        frame.gather_every(-(-frame.height // N_CHECKED)),
    ]
    return pl.concat(parts).unique("point", maintain_order=True).sort("point")


def _stands(frame: pl.DataFrame, judged: Judged, evaluator: Evaluator) -> bool:
    rows, its = checked(frame), ["point", "point_id", "physics_id"]
    today = keys_of(rows, judged.survivors, evaluator).select(its).sort("point")
    return today.equals(rows.select(its))


def _certificate(record: dict[str, Any]) -> Certificate:
    facts = {name: value for name, value in record.items() if name not in ("valid", "statement")}
    return Certificate(
        **facts
        | {
            "rounds": tuple(Round(**each) for each in facts["rounds"]),
            "violations": tuple(Violation(**each) for each in facts["violations"]),
            "tightness": {name: tuple(pair) for name, pair in facts["tightness"].items()},
        }
    )
