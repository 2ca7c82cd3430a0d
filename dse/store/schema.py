"""The tables of a store: made once, migrated forward, widened by what rows bring."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import duckdb
import polars as pl

from dse.base.errors import StoreError
from dse.store.connection import connected

SCHEMA_VERSION = 3
APPLICATION = "dse"

KEYS = ("point_id", "replicate", "physics_id")
# Tables that grow with the points, and what no two of their rows share. The writer sees to it.
GROWING = {
    "deployment": ("deployment_id",),
    "point": ("point_id",),
    "result": KEYS,
    "latency_sketch": KEYS,
}

# SQL that takes a store from the version before to the one named; run in order, all in one commit.
MIGRATIONS: dict[int, str] = {2: "without_indexes.sql", 3: "whole_answers.sql"}
# From here on `answer` holds what the views made of three tables before.
_WHOLE_ANSWERS = 3

# Tables whose rows may bring columns of their own: axes of a space, metrics of a simulator,
# objectives of a study.
WIDENING = frozenset({"answer", "point", "result"})

_INTEGERS = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"
)  # fmt: skip
_NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "REAL")


def make(path: Path) -> None:
    """Make an empty store at `path` in one step: a process killed meanwhile leaves no half store.

    Another process that made the same store first wins.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with connected(draft, read_only=False, patience_s=0.0, named=path) as connection:
            connection.execute(_text("schema.sql"))
            connection.execute("INSERT INTO meta VALUES (?, ?)", [APPLICATION, SCHEMA_VERSION])
            _make_views(connection)
        if not path.exists():
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def version_of(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """The schema version of an open file; a `StoreError` if it is not ours or is a newer one's."""
    try:
        rows = connection.execute("SELECT application, schema_version FROM meta").fetchall()
    except (duckdb.CatalogException, duckdb.BinderException):
        rows = []
    if not rows or rows[0][0] != APPLICATION:
        raise StoreError(
            f"{path}: a DuckDB file of another program", "choose another store with --store"
        )
    version = int(rows[0][1])
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: written by a newer dse (schema {version}; this one knows {SCHEMA_VERSION})",
            "update dse, or choose another store with --store",
        )
    return version


def migrate(connection: duckdb.DuckDBPyConnection, version: int) -> None:
    """Bring an open store from `version` to this one's, or leave it wholly as it was."""
    connection.execute("BEGIN")
    for step in range(version + 1, SCHEMA_VERSION + 1):
        connection.execute(_text(MIGRATIONS[step]))
        if step == _WHOLE_ANSWERS:
            fit(connection, "answer")
            insert_answers(connection)
            connection.execute("DROP TABLE incoming")
    connection.execute("UPDATE meta SET schema_version = ?", [SCHEMA_VERSION])
    _make_views(connection)
    connection.execute("COMMIT")


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, rows: pl.DataFrame) -> Iterator[None]:
    """While `rows` are the view `incoming`."""
    connection.register("incoming", rows)
    yield
    connection.unregister("incoming")


def widen(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
    """Make `table` take `rows`: see `fit`. In one commit, as each waits for the disk."""
    with registered(connection, rows.head(0)):
        connection.execute("BEGIN")
        fit(connection, table)
        connection.execute("COMMIT")


def fit(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Give `table` the columns that `incoming` has and it lacks, of the type that SQL sees in them.

    A metric is a DOUBLE unless it counts (`n_…`). A column of another type than before takes the
    wider of both, so that no value is rounded: whole number, number, text.
    """
    known, changed = columns_of(connection, table), False
    for name, kind in columns_of(connection, "incoming").items():
        is_metric = table == "result" and kind in _INTEGERS and not name.startswith("n_")
        if name not in known:
            kept = "DOUBLE" if is_metric else kind
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {kept}")
        elif _width(kind) > _width(known[name]):
            connection.execute(f"ALTER TABLE {table} ALTER {quoted(name)} TYPE {kind}")
        else:
            continue
        changed = True
    if changed:
        _make_views(connection)


def _width(kind: str) -> int:
    """Which types hold every value of another; equal for those that are no choice."""
    if kind in _INTEGERS:
        return 1
    return {"BOOLEAN": 0, "FLOAT": 2, "DOUBLE": 2, "VARCHAR": 3}.get(kind, 3)


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def columns_of(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """The SQL type of each column of a table or view, in its order."""
    rows = connection.execute(f"DESCRIBE {relation}").fetchall()
    return {str(row[0]): str(row[1]) for row in rows}


def insert_answers(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the rows of `incoming` to `answer`, which fits; a run's earlier answer gives way."""
    connection.execute("DELETE FROM answer WHERE run_id IN (SELECT run_id FROM incoming)")
    connection.execute(
        "INSERT INTO answer BY NAME SELECT incoming.*, named.deployment_id FROM incoming "
        "LEFT JOIN (SELECT point_id, deployment_id FROM point) AS named USING (point_id)"
    )


def _make_views(connection: duckdb.DuckDBPyConnection) -> None:
    metrics = [
        name
        for name, kind in columns_of(connection, "result").items()
        if kind.startswith(_NUMERIC) and not kind.endswith("[]") and name != "replicate"
    ]
    means = [f"avg({quoted(name)}) AS {quoted(name)}" for name in metrics]
    connection.execute(_text("views.sql").replace("{means}", ", ".join(means)))


def _text(name: str) -> str:
    return files("dse.store").joinpath(name).read_text(encoding="utf-8")
