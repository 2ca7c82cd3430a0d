"""Where the two sides of a comparison come from: an outcome, a stored run, a file of rows."""

import json
from pathlib import Path

import polars as pl

from dse.base.errors import UserError
from dse.report.compare import Side
from dse.report.record import Outcome
from dse.store import Store

__all__ = ["of_file", "of_outcome", "of_run", "of_study"]

_ROWS = """
SELECT answer.point_id, answer.on_front, answer.feasible, point.* EXCLUDE (point_id),
       point_result.* EXCLUDE (point_id, physics_id), deployment.facts{breakdown}
FROM answer
JOIN point USING (point_id)
JOIN point_result ON point_result.point_id = answer.point_id
                 AND point_result.physics_id = answer.physics_id
LEFT JOIN deployment ON deployment.deployment_id = point.deployment_id{first}
WHERE answer.run_id = '{run}'
"""
_FIRST = """
LEFT JOIN (SELECT point_id, physics_id, step_breakdown FROM result WHERE replicate = 0) AS first
       ON first.point_id = answer.point_id AND first.physics_id = answer.physics_id"""


def of_outcome(outcome: Outcome, name: str = "") -> Side:
    """The results of an outcome; without the facts, which only a store holds."""
    return Side(
        name=name or outcome.study.name, results=outcome.results, provenance=outcome.provenance
    )


def of_file(path: Path) -> Side:
    """Rows of a report's `front.parquet` or `front.json`, or of `dse query --parquet`."""
    if not path.exists():
        raise UserError(f"{path}: no such file", "name a study, a run or a file of rows")
    if path.suffix == ".parquet":
        rows = pl.read_parquet(path)
    elif path.suffix == ".json":
        held = json.loads(path.read_text("utf-8"))
        found = held.get("front") or held.get("rows") if isinstance(held, dict) else held
        rows = pl.DataFrame(found, infer_schema_length=None)
    else:
        raise UserError(f"{path}: rows come as .parquet or .json", "see `dse query --parquet`")
    name = path.parent.name or path.stem if path.stem == "front" else path.stem
    return Side(name=name, results=rows, provenance={})


def of_study(store: Store, name: str, back: int = 0) -> Side:
    """The last run of a study that came to its end, or the one `back` runs before it."""
    quoted = name.replace("'", "''")
    runs = store.query(
        "SELECT run_id FROM run JOIN study USING (study_id) "
        f"WHERE name = '{quoted}' AND status = 'done' ORDER BY started_at DESC"
    )
    if runs.height <= back:
        found = f"{runs.height} finished run{'s' if runs.height != 1 else ''}"
        raise UserError(f"{store.path} has {found} of {name}", f"dse run {name}")
    return of_run(store, runs["run_id"][back], name if not back else f"{name} (run before)")


def of_run(store: Store, run: str, name: str = "") -> Side:
    """The run whose id starts with `run`."""
    wanted = run.lower()
    if not wanted or set(wanted) - set("0123456789abcdef"):
        raise UserError(
            f"{run!r} is no run, no study of {store.path} and no file of rows",
            "`dse query 'FROM run'` lists runs by run_id",
        )
    known = store.query(f"SELECT * FROM run WHERE starts_with(run_id, '{wanted}')")
    if known.height != 1:
        what = "no run" if not known.height else f"{known.height} runs"
        raise UserError(
            f"{store.path} has {what} {run!r}", "`dse query 'FROM run'` lists them by run_id"
        )
    record = known.row(0, named=True)
    columns = store.query("SELECT * FROM result LIMIT 0").columns
    has = "step_breakdown" in columns
    sql = _ROWS.format(
        run=record["run_id"],
        breakdown=", first.step_breakdown" if has else "",
        first=_FIRST if has else "",
    )
    provenance = {"catalog": record["catalog_digest"], "versions": record["versions"]}
    provenance["study"] = record["study_id"]
    label = name or f"run {record['run_id'][:8]}"
    return Side(name=label, results=store.query(sql), provenance=provenance)
