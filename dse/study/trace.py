"""Recorded traces: CSV, JSON lines or Parquet, with our columns or those of public traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from dse.base.digest import digest
from dse.base.errors import StudyError, did_you_mean
from dse.serving.arrivals import Trace, TraceRequest

__all__ = ["COLUMNS", "read_trace"]

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "arrival": ("arrival_s", "arrival", "arrived_at", "timestamp", "TIMESTAMP"),
    "isl": ("isl_tokens", "isl", "input_tokens", "input_length", "ContextTokens"),
    "osl": ("osl_tokens", "osl", "output_tokens", "output_length", "GeneratedTokens"),
    "session": ("session", "session_id", "chat_id"),
    "priority": ("priority",),
    "hash_ids": ("hash_ids",),
}
"""What each column may be called: here, in Mooncake's traces (arXiv:2407.00079) and in Azure's LLM
inference traces (arXiv:2311.18677)."""

MOONCAKE_BLOCK_TOKENS = 512
MS_PER_S = 1000.0
WHOLE = ("isl", "osl", "priority")
MOST_WHOLE = 2**53
_READERS: Mapping[str, Callable[[Path], pl.DataFrame]] = {
    ".csv": pl.read_csv,
    ".jsonl": pl.read_ndjson,
    ".ndjson": pl.read_ndjson,
    ".parquet": pl.read_parquet,
}


def read_trace(path: str | Path) -> Trace:
    """Return the requests of a trace file, which stand in order of arrival; the first is at 0 s.

    A number is seconds, but milliseconds in the column `timestamp` (Mooncake); a text is a date and
    time (Azure). `hash_ids` name blocks of 512 tokens. Rows without tokens or out of order, columns
    that are missing or told twice and files that cannot be read are a `StudyError`.
    """
    file = Path(path)
    frame = _frame(file)
    names = {word: _column(file, frame, word) for word in COLUMNS}
    missing = [word for word in ("arrival", "isl", "osl") if names[word] is None]
    if missing:
        wanted = "; ".join(f"{word}: one of {', '.join(COLUMNS[word])}" for word in missing)
        raise StudyError(f"{file}: no column for {wanted}", f"it has {', '.join(frame.columns)}")
    _require_numbers(file, frame, names)
    named = _named(frame, names)
    _require_order(file, named, names)
    rows = _rows(file, named)
    plain = [
        (r.arrival_s, r.isl_tokens, r.osl_tokens, r.session, r.priority, r.hash_ids) for r in rows
    ]
    return Trace(file=str(path), content_id=digest(plain), rows=rows)


def _frame(file: Path) -> pl.DataFrame:
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        hint = did_you_mean(file.suffix, _READERS) or f"; one of {', '.join(_READERS)}"
        raise StudyError(f"{file}: a trace does not end in {file.suffix!r}{hint}")
    try:
        frame = reader(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StudyError(f"{file}: cannot be read as a trace: {error}") from error
    if frame.is_empty():
        raise StudyError(f"{file}: the trace is empty", "give at least one request")
    return frame


def _require_numbers(file: Path, frame: pl.DataFrame, names: Mapping[str, str | None]) -> None:
    """Lengths and priorities are whole numbers, arrivals not negative; the first fault is named."""
    for word in WHOLE:
        name = names[word]
        if name is not None:
            whole = pl.col(name).cast(pl.Float64, strict=False)
            faulty = ~((whole == whole.floor()) & (whole.abs() <= MOST_WHOLE))
            _refuse(file, frame, name, faulty, "write a whole number")
    name = names["arrival"]
    if name is None:
        return
    seconds = pl.col(name).cast(pl.Float64, strict=False)
    # Texts are dates, unless one of them is a number.
    if frame.schema[name].is_numeric() or frame.select(seconds.is_finite().any()).item():
        early = ~(seconds.is_finite() & (seconds >= 0))
        _refuse(file, frame, name, early, "count from the start of the trace")


def _refuse(file: Path, frame: pl.DataFrame, name: str, faulty: pl.Expr, remedy: str) -> None:
    """A StudyError at the first row that is `faulty` and not empty, whose column is `name`."""
    where = pl.col(name).is_not_null() & faulty.fill_null(value=True)
    bad = frame.with_row_index("at").filter(where)
    if bad.height:
        row = bad.row(0, named=True)
        raise StudyError(f"{file}: row {row['at'] + 1}, column {name}: {row[name]!r}", remedy)


def _column(file: Path, frame: pl.DataFrame, word: str) -> str | None:
    found = [name for name in COLUMNS[word] if name in frame.columns]
    if len(found) > 1:
        raise StudyError(f"{file}: {' and '.join(found)} both tell {word}", "keep one of them")
    return found[0] if found else None


def _named(frame: pl.DataFrame, names: Mapping[str, str | None]) -> pl.DataFrame:
    """Return the trace's columns by our words: arrival in seconds from the earliest."""
    found = frame.select(pl.col(name).alias(word) for word, name in names.items() if name)
    whole = [word for word in WHOLE if names[word]]
    found = found.with_columns(pl.col(whole).cast(pl.Float64).cast(pl.Int64))
    if found.schema["arrival"] == pl.String:
        when = pl.col("arrival").str.to_datetime(time_unit="us", strict=False)
        seconds = when.dt.timestamp("us").cast(pl.Float64) / 1e6
    else:
        scale = MS_PER_S if names["arrival"] == "timestamp" else 1.0
        seconds = pl.col("arrival").cast(pl.Float64) / scale
    arrived = found.with_row_index("row").with_columns(seconds.alias("arrival"))
    return arrived.with_columns(pl.col("arrival") - pl.col("arrival").min())


def _require_order(file: Path, frame: pl.DataFrame, names: Mapping[str, str | None]) -> None:
    """A row that arrives before the one above it is a fault: sorting would hide a broken clock."""
    late = frame.filter(pl.col("arrival").diff() < 0.0)
    if late.height:
        row = late.row(0, named=True)["row"] + 1
        message = f"{file}: row {row}, column {names['arrival']}: arrives before the row above it"
        raise StudyError(f"{message}; {late.height} such rows", "sort the trace by arrival")


def _rows(file: Path, frame: pl.DataFrame) -> tuple[TraceRequest, ...]:
    good = pl.col("arrival").is_finite() & (pl.col("isl") >= 1) & (pl.col("osl") >= 1)
    bad = frame.filter(~good.fill_null(value=False))
    if bad.height:
        first = bad.row(0, named=True)
        shown = ", ".join(f"{word} {first[word]}" for word in ("arrival", "isl", "osl"))
        raise StudyError(
            f"{file}: row {first['row'] + 1} is no request ({shown}); {bad.height} such rows",
            "each needs a time and at least one token in and out",
        )
    return tuple(_request(row) for row in frame.iter_rows(named=True))


def _request(row: Mapping[str, Any]) -> TraceRequest:
    session = row.get("session")
    return TraceRequest(
        arrival_s=row["arrival"],
        isl_tokens=int(row["isl"]),
        osl_tokens=int(row["osl"]),
        session="" if session is None else str(session),
        priority=int(row.get("priority") or 0),
        hash_ids=tuple(row.get("hash_ids") or ()),
        hash_tokens=MOONCAKE_BLOCK_TOKENS,
    )
