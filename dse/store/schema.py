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

SCHEMA_VERSION = 2
APPLICATION = "dse"

KEYS = ("point_id", "replicate", "physics_id")
# Tables that grow with the points, and what no two of their rows share. The writer sees to it.
GROWING = {
    "deployment": ("deployment_id",),
    "point": ("point_id",),
    "result": KEYS,
    "latency_sketch": KEYS,
    "answer": ("run_id", "point_id"),
}

# SQL that takes a store from the version before to the one named; run in order, all in one commit.
MIGRATIONS: dict[int, str] = {2: "without_indexes.sql"}

# Tables whose rows may bring columns of their own: axes of a space, metrics of a simulator.
WIDENING = frozenset({"point", "result"})

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UINTEGER", "UBIGINT")
_NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "REAL")


def make(path: Path) -> None:
    """Make an empty store at `path` in one step: a process killed meanwhile leaves no half store.

    Another process that made the same store first wins.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with connected(draft, read_only=False, patience_s=0.0) as connection:
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
    """Give `table` the columns that `rows` have and it lacks, of the type that SQL sees in them.

    A metric is a DOUBLE unless it counts (`n_…`), so that a first batch of whole numbers does not
    make later ones lose their fractions.
    """
    known = columns_of(connection, table)
    with registered(connection, rows.head(0)):
        brought = columns_of(connection, "incoming")
    new = {name: kind for name, kind in brought.items() if name not in known}
    for name, kind in new.items():
        is_metric = table == "result" and kind in _INTEGERS and not name.startswith("n_")
        kept = "DOUBLE" if is_metric else kind
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {kept}")
    if new:
        _make_views(connection)


def quoted(name: str) -> str:
    """`name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def columns_of(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """The SQL type of each column of a table or view, in its order."""
    rows = connection.execute(f"DESCRIBE {relation}").fetchall()
    return {str(row[0]): str(row[1]) for row in rows}


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
