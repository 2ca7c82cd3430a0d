"""One file per project that remembers every simulated result, and the answers made of them.

The driver opens the file only to flush or to read, so others may read between and two runs may
share it. Workers never see it. A row is a *fact*: it is inserted or ignored, except that a failed
row gives way to a later success.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import duckdb
import polars as pl

from dse.base.errors import StoreError, UserError
from dse.store.connection import confined, connected, refuse_foreign
from dse.store.schema import (
    GROWING,
    KEYS,
    SCHEMA_VERSION,
    WIDENING,
    insert_answers,
    make,
    migrate,
    registered,
    version_of,
    widen,
)

_KEY_TYPES = pl.Schema({"point_id": pl.String, "replicate": pl.Int32, "physics_id": pl.String})
_KNOWN_TYPES = pl.Schema([*_KEY_TYPES.items(), ("status", pl.String)])
# A bound on memory. Far more than a row group of DuckDB: smaller commits are written twice.
_MOST_WAITING_BYTES = 128 * 2**20
_READER_PATIENCE_S = 2.0


class Store:
    """Results by `(point_id, replicate, physics_id)`; rows wait up to `flush_interval_s` seconds.

    Use it as a context manager: leaving the block flushes. A flush that fails keeps its rows. One
    that is `read_only` keeps rows in memory alone, so that another's store can be read.
    """

    def __init__(
        self,
        path: Path,
        *,
        flush_interval_s: float = 5.0,
        lock_timeout_s: float = 60.0,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._read_only = read_only
        self._flush_interval_s = flush_interval_s
        self._lock_timeout_s = lock_timeout_s
        self._lock = threading.RLock()
        self._pending: list[tuple[str, pl.DataFrame]] = []
        self._timer: threading.Timer | None = None
        self._failure: StoreError | None = None
        self._waiting_bytes = 0.0

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        flush_interval_s: float = 5.0,
        lock_timeout_s: float = 60.0,
        read_only: bool = False,
    ) -> "Store":
        """The store at `path`, made if there is none and migrated if it is older.

        Raises `StoreError` for a file that is truncated, another program's, newer, or locked for
        longer than `lock_timeout_s` seconds; such a file stays as it is.
        """
        resolved = Path(path).expanduser().absolute()
        store = cls(
            resolved,
            flush_interval_s=flush_interval_s,
            lock_timeout_s=lock_timeout_s,
            read_only=read_only,
        )
        if not resolved.exists():
            if not resolved.parent.is_dir():
                raise StoreError(
                    f"{resolved}: its folder does not exist", "make the folder, or pass --store"
                )
            make(resolved)
        refuse_foreign(resolved)
        version = _checked_version(resolved, lock_timeout_s)
        if version < SCHEMA_VERSION:
            with connected(resolved, read_only=False, patience_s=lock_timeout_s) as connection:
                migrate(connection, version_of(connection, resolved))
        return store

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def missing(self, keys: pl.DataFrame, *, retry: Sequence[str] = ()) -> pl.DataFrame:
        """The rows of `keys` that have no result, in their order; `keys` has the columns `KEYS`.

        A failed result counts as one unless its status is in `retry`.
        """
        with self._lock:
            self._raise_failure()
            waiting = [each.select(*KEYS, "status") for each in self._waiting("result")]
            stored = self._stored(keys, "result", (*KEYS, "status"))
            done = pl.concat([stored.cast(_KNOWN_TYPES), *waiting])
        if retry:
            done = done.filter(~pl.col("status").is_in(list(retry)))
        return keys.join(done.select(KEYS), on=list(KEYS), how="anti", maintain_order="left")

    def append(self, frame: pl.DataFrame, table: str = "result") -> None:
        """Take rows in; they are in the file after the next flush.

        `table` is one of `GROWING`. Columns that `point` or `result` do not have yet are added to
        them; another table's row must fit it. Columns without a single value are left out.
        """
        if frame.is_empty():
            return
        frame = _without_nothing(frame)
        if "replicate" in frame.columns:
            frame = frame.with_columns(pl.col("replicate").cast(pl.Int32))
        with self._lock:
            self._raise_failure()
            self._pending.append((table, frame))
            self._waiting_bytes += frame.estimated_size()
            if self._waiting_bytes > _MOST_WAITING_BYTES:
                self.flush()
            elif self._timer is None and not self._read_only:
                self._timer = threading.Timer(self._flush_interval_s, self._flush_in_time)
                self._timer.daemon = True
                self._timer.start()

    def results(self, keys: pl.DataFrame, table: str = "result") -> pl.DataFrame:
        """The rows of `keys` in `table`, in their order, those still waiting included.

        `table` is `result` or `latency_sketch`; keys without a row give none.
        """
        with self._lock:
            self._raise_failure()
            waiting = self._waiting(table)
            stored = self._stored(keys, table)
        if stored.is_empty():
            stored = pl.DataFrame(schema=_KEY_TYPES)
        rows = _first_success(pl.concat([stored, *waiting], how="diagonal_relaxed"), KEYS)
        return keys.select(KEYS).join(rows, on=list(KEYS), how="inner", maintain_order="left")

    def query(self, sql: str) -> pl.DataFrame:
        """The rows of one SQL statement on what is in the file, read-only."""
        with confined(self.path, patience_s=_READER_PATIENCE_S) as connection:
            version_of(connection, self.path)
            return _selected(connection, sql)

    def replace(self, frame: pl.DataFrame, table: str) -> None:
        """Write rows at once, each in the place of the one with its key: a run's own record."""
        with self._lock:
            self.flush()
            with self._writing() as connection, registered(connection, frame):
                connection.execute(f"INSERT OR REPLACE INTO {table} BY NAME FROM incoming")

    def answer(self, frame: pl.DataFrame) -> None:
        """Write what a run answered: `run_id`, `point_id`, verdicts, axes, metrics, objectives.

        Columns that `answer` does not have yet are added; an earlier answer of the run gives way.
        """
        frame = _without_nothing(frame)
        with self._lock:
            self.flush()
            with self._writing() as connection:
                # Rows of a commit that also adds columns would be written twice.
                widen(connection, "answer", frame)
                with registered(connection, frame):
                    connection.execute("BEGIN")
                    insert_answers(connection)
                    connection.execute("COMMIT")

    def flush(self) -> None:
        """Write every waiting row in one commit; on an error all keep waiting."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if not self._pending or self._read_only:
                return
            batches = _batches(self._pending)
            with self._writing() as connection:
                # Rows of a commit that also adds columns would be written twice.
                for table in WIDENING & batches.keys():
                    widen(connection, table, batches[table])
                connection.execute("BEGIN")
                for table, rows in batches.items():
                    _append(connection, table, rows)
                connection.execute("COMMIT")
            self._pending.clear()
            self._waiting_bytes = 0.0
            self._failure = None

    def close(self) -> None:
        """Flush; the object may be used again."""
        self.flush()

    def _writing(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        return connected(self.path, read_only=False, patience_s=self._lock_timeout_s)

    def _flush_in_time(self) -> None:
        with self._lock:
            try:
                self.flush()
            except StoreError as error:
                self._failure = error

    def _raise_failure(self) -> None:
        """Raise in the caller's thread what the timer's met."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _waiting(self, table: str) -> list[pl.DataFrame]:
        return [frame for name, frame in self._pending if name == table]

    def _stored(
        self, keys: pl.DataFrame, table: str, columns: Sequence[str] = ("*",)
    ) -> pl.DataFrame:
        """The rows of `keys` in the file, which stays closed if a success of each waits: a row is
        a fact, there as here.
        """
        wanted = keys.select(KEYS).unique()
        for rows in self._waiting(table):
            done = rows.filter(pl.col("status") == "ok") if "status" in rows.columns else rows
            wanted = wanted.join(done, on=list(KEYS), how="anti")
        if wanted.is_empty():
            return pl.DataFrame(schema=_KNOWN_TYPES if "status" in columns else _KEY_TYPES)
        with connected(self.path, read_only=True, patience_s=_READER_PATIENCE_S) as connection:
            connection.register("wanted", wanted)
            what = f"SELECT {', '.join(columns)} FROM {table}"
            return _selected(connection, f"{what} SEMI JOIN wanted USING ({', '.join(KEYS)})")


def _checked_version(path: Path, patience_s: float) -> int:
    with connected(path, read_only=True, patience_s=patience_s) as connection:
        return version_of(connection, path)


def _selected(connection: duckdb.DuckDBPyConnection, sql: str) -> pl.DataFrame:
    try:
        relation = connection.sql(sql)
        if relation is None:
            raise UserError("a query must select rows", "write SELECT …")
        frame: pl.DataFrame = relation.pl()
        return frame.with_columns(
            frame[name].cast(pl.Int64 if dtype.scale == 0 else pl.Float64)
            for name, dtype in frame.schema.items()
            # Sums of whole numbers come as decimals of 38 digits.
            if isinstance(dtype, pl.Decimal)
        )
    except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
        raise UserError(
            f"SQL: {error}", "SHOW TABLES lists the tables, DESCRIBE x a table"
        ) from error
    except duckdb.PermissionException as error:
        raise UserError(f"SQL: {error}", "a query reads this store only") from error


def _without_nothing(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` without the columns that have no type, as none of their values is known."""
    return frame.drop(name for name, dtype in frame.schema.items() if dtype == pl.Null)


def _batches(pending: Sequence[tuple[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Waiting rows by table, one a key.

    In one piece: DuckDB takes a frame of many small pieces for half as many rows a second.
    """
    by_table: dict[str, list[pl.DataFrame]] = {}
    for table, frame in pending:
        by_table.setdefault(table, []).append(frame)
    return {
        table: _first_success(pl.concat(frames, how="diagonal_relaxed"), GROWING[table]).rechunk()
        for table, frames in by_table.items()
    }


def _first_success(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """One row a key: the first success, else the first failure; order kept otherwise."""
    if rows.select(keys).is_unique().all():
        return rows
    if "status" in rows.columns:
        rows = rows.sort(pl.col("status") != "ok", maintain_order=True)
    return rows.unique(list(keys), keep="first", maintain_order=True)


def _append(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> None:
    """Add the rows of new keys. The open file is ours alone, so that nobody adds them meanwhile."""
    keys = ", ".join(GROWING[table])
    with registered(connection, rows):
        if table == "result":
            better = "(FROM incoming WHERE status = 'ok')"
            connection.execute(
                "DELETE FROM result WHERE rowid IN (SELECT result.rowid FROM result "
                f"SEMI JOIN {better} AS better USING ({keys}) WHERE result.status <> 'ok')"
            )
        fresh = f"FROM incoming ANTI JOIN {table} USING ({keys})"
        connection.execute(f"INSERT INTO {table} BY NAME {fresh}")
