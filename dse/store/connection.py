"""Opening a DuckDB file: who holds it, whether it is ours, and what to say when it is not."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from dse.base.errors import StoreError

# Extensions would be fetched from a network; nothing here needs one.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_PAUSE_S = 0.05
# DuckDB refuses a second connection of one process to a file unless both are configured alike, and
# an engine has one file under a name.
_ONE_AT_A_TIME = threading.RLock()
# To start an engine takes several times as long as to attach a file to one. By process, as a fork
# has none of the threads of its parent's.
_ENGINES: dict[int, duckdb.DuckDBPyConnection] = {}


@contextmanager
def connected(
    path: Path, *, read_only: bool, patience_s: float, named: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The file as the database of a connection, open for the length of the block and no longer;
    waits up to `patience_s` seconds for the holder. Errors speak of `named` where `path` is a draft
    of it.

    Raises `StoreError`: locked (the holder's process id is named), damaged, foreign, unreadable, or
    full disk. A file that does not exist is made unless `read_only`.
    """
    mode, name = "READ_ONLY" if read_only else "READ_WRITE", str(path).replace("'", "''")
    with _ONE_AT_A_TIME, _told(named or path):
        engine = _engine()
        try:
            _patiently(
                lambda: engine.execute(f"ATTACH '{name}' AS store ({mode})"), path, patience_s
            )
            connection = engine.cursor()
            try:
                connection.execute("USE store")
                yield connection
            finally:
                connection.close()
            engine.execute("DETACH store")
        except BaseException:
            # Whatever it was, nothing of it is left, and an engine that failed serves no one else.
            del _ENGINES[os.getpid()]
            engine.close()
            raise


@contextmanager
def confined(path: Path, *, patience_s: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads this file and can reach no other, for SQL that users write; errors as
    those of `connected`.
    """
    config = _CONFIG | {"enable_external_access": "false"}
    with _ONE_AT_A_TIME, _told(path):
        connection = _patiently(
            lambda: duckdb.connect(str(path), read_only=True, config=config), path, patience_s
        )
        try:
            yield connection
        finally:
            connection.close()


def refuse_foreign(path: Path) -> None:
    """Raise a `StoreError` unless the file has the header of a DuckDB database."""
    try:
        with path.open("rb") as file:
            header = file.read(12)
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror}", "choose another store with --store"
        ) from error
    if header[8:] != b"DUCK":
        raise _unusable(path, "it is not a valid DuckDB file")


def _engine() -> duckdb.DuckDBPyConnection:
    """This process's engine, which holds no file."""
    if os.getpid() not in _ENGINES:
        _ENGINES[os.getpid()] = duckdb.connect(":memory:", config=_CONFIG)
    return _ENGINES[os.getpid()]


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Faults of the file become a `StoreError` about `path`; those of SQL stay what they are."""
    try:
        yield
    except (duckdb.IOException, duckdb.FatalException, duckdb.InternalException) as error:
        raise _unusable(path, error) from error


def _patiently(
    opened: Callable[[], duckdb.DuckDBPyConnection], path: Path, patience_s: float
) -> duckdb.DuckDBPyConnection:
    """What `opened` gives once nobody else holds the file."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return opened()
        except duckdb.IOException as error:
            if not _is_lock(error):
                raise
            if time.monotonic() >= deadline:
                raise _locked(path, error, patience_s) from error
        except duckdb.Error as error:
            raise _unusable(path, error) from error
        time.sleep(_PAUSE_S)


def _is_lock(error: duckdb.Error) -> bool:
    return "Could not set lock" in str(error)


def _locked(path: Path, error: duckdb.Error, patience_s: float) -> StoreError:
    holder = re.search(r"PID (\d+)", str(error))
    who = f"process {holder[1]}" if holder else "another process"
    return StoreError(
        f"{path}: {who} has held the store for over {patience_s:g} s",
        "wait for it, end it, or give this run a store of its own with --store",
    )


def _unusable(path: Path, error: duckdb.Error | str) -> StoreError:
    text = str(error).splitlines()[0]
    if "not a valid DuckDB" in text or "Could not read enough bytes" in text or "orrupt" in text:
        return StoreError(
            f"{path}: not a whole store: {text}",
            "it was left as it is; restore it from a copy, or choose another with --store",
        )
    if any(each in text for each in ("No space left", "File too large", "uota exceeded")):
        return StoreError(f"{path}: {text}", "free space on that disk, then run again: it resumes")
    if "ermission denied" in text or "Read-only file system" in text:
        return StoreError(
            f"{path}: cannot be written: permission denied or a read-only disk",
            "make it and its folder writable, or choose another with --store",
        )
    if "storage version" in text or "version number" in text:
        return StoreError(f"{path}: {text}", "open it with the DuckDB release that wrote it")
    return StoreError(f"{path}: {text}", "choose another store with --store")
