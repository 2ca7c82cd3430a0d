"""Opening a DuckDB file: who holds it, whether it is ours, and what to say when it is not."""

import re
import threading
import time
from collections.abc import Iterator
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
# DuckDB refuses a second connection of one process to a file unless both are configured alike.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def connected(
    path: Path, *, read_only: bool, patience_s: float, named: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for the length of the block; waits up to `patience_s` seconds for the holder.
    Errors speak of `named` where `path` is a draft of it.

    Raises `StoreError`: locked (the holder's process id is named), damaged, foreign, unreadable, or
    full disk. A file that does not exist is made unless `read_only`.
    """
    with _ONE_AT_A_TIME:
        said = named or path
        try:
            connection = _patiently(path, read_only=read_only, patience_s=patience_s)
        except duckdb.Error as error:
            raise _unusable(said, error) from error
        try:
            yield connection
        except (duckdb.IOException, duckdb.FatalException, duckdb.InternalException) as error:
            raise _unusable(said, error) from error
        finally:
            _close(connection, said)


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


def _patiently(path: Path, *, read_only: bool, patience_s: float) -> duckdb.DuckDBPyConnection:
    deadline = time.monotonic() + patience_s
    config = {**_CONFIG, **({"enable_external_access": "false"} if read_only else {})}
    while True:
        try:
            return duckdb.connect(str(path), read_only=read_only, config=config)
        except duckdb.Error as error:
            if not _is_lock(error):
                raise
            if time.monotonic() >= deadline:
                raise _locked(path, error, patience_s) from error
        time.sleep(_PAUSE_S)


def _close(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    try:
        connection.close()
    except duckdb.Error as error:
        raise _unusable(path, error) from error


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
