"""Measured serving rows: one record a row, SI inside, read from a CSV file in milliseconds.

The schema is that of `COLUMNS`; what a source does not say is None, never a default. Further
columns stay in the frame and are not read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from dse.base.errors import Fault, SourceError, UserError, did_you_mean

_TEXT, _FLOAT, _INT, _BOOL = pl.String(), pl.Float64(), pl.Int64(), pl.Boolean()

COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "file": _TEXT, "grade": _TEXT, "source": _TEXT, "source_path": _TEXT, "date": _TEXT,
    "model": _TEXT, "precision_weights": _TEXT, "precision_kv": _TEXT, "gpu": _TEXT,
    "n_gpus": _INT, "tp": _INT, "ep": _TEXT, "dp_attn": _BOOL, "pp": _INT,
    "framework": _TEXT, "framework_version": _TEXT, "isl": _FLOAT, "osl": _FLOAT,
    "concurrency_or_batch": _INT, "load_mode": _TEXT, "spec_decode": _TEXT, "disagg": _BOOL,
    "ttft_ms": _FLOAT, "ttft_stat": _TEXT, "tpot_ms": _FLOAT, "tpot_stat": _TEXT,
    "itl_ms": _FLOAT, "e2e_latency_ms": _FLOAT, "e2e_stat": _TEXT,
    "request_throughput_per_s": _FLOAT, "output_tok_s_total": _FLOAT, "total_tok_s": _FLOAT,
    "notes": _TEXT,
}  # fmt: skip
NEEDED: Final = ("model", "gpu", "isl", "osl", "concurrency_or_batch")

_ARGUMENT = re.compile(r"--([a-z][a-z0-9-]*)(?:[= ]([^\s-][^\s]*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured row as its source states it; `line` is its line in the file.

    `concurrency` is the load's own number: requests in flight, the batch of a static run, or the
    engine's cap where all requests were sent at once (`load_mode` says which). Latencies in seconds
    with the statistic that they are (`*_stat`); rates are of the whole deployment.
    """

    line: int
    model: str
    gpu: str
    isl_tokens: float
    osl_tokens: float
    concurrency: int
    n_gpus: int | None = None
    tp: int | None = None
    ep: str | None = None
    dp_attn: bool | None = None
    pp: int | None = None
    framework: str | None = None
    framework_version: str | None = None
    precision_weights: str | None = None
    precision_kv: str | None = None
    load_mode: str | None = None
    spec_decode: str | None = None
    disagg: bool | None = None
    ttft_s: float | None = None
    ttft_stat: str | None = None
    tpot_s: float | None = None
    tpot_stat: str | None = None
    itl_s: float | None = None
    e2e_s: float | None = None
    e2e_stat: str | None = None
    req_per_s: float | None = None
    output_tok_per_s: float | None = None
    total_tok_per_s: float | None = None
    file: str | None = None
    grade: str | None = None
    source: str | None = None
    source_path: str | None = None
    date: str | None = None
    notes: str = field(default="", repr=False)

    @property
    def engine_arguments(self) -> Mapping[str, str]:
        """Launch arguments of the engine that the notes print after `args:`, by name without
        dashes; a switch maps to an empty text.
        """
        _, found, arguments = self.notes.partition("args:")
        return dict(_ARGUMENT.findall(arguments)) if found else {}

    def note(self, name: str) -> float | None:
        """The number that the notes give as `name=number`, or None."""
        match = re.search(rf"(?<![\w-]){re.escape(name)}=([\d.]*\d)", self.notes)
        return float(match[1]) if match else None

    @property
    def kv_pool_tokens(self) -> int | None:
        """Tokens of the KV pool that the engine printed, or None."""
        blocks, block = self.note("num_gpu_blocks"), self.note("block_size")
        return int(blocks * block) if blocks and block else None

    @property
    def mean_tpot_s(self) -> float | None:
        """Mean TPOT where the row gives it, beside or as its statistic."""
        noted = self.note("mean_tpot")
        if noted is not None:
            return noted / 1e3
        return self.tpot_s if (self.tpot_stat or "").startswith("mean") else None


def read_frame(path: str | Path) -> pl.DataFrame:
    """The rows of `path` as they stand, each column of `COLUMNS` of its type (missing ones null).

    SourceError with every column that is missing or cannot be read as its type.
    """
    path = Path(path)
    try:
        raw = pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: {error}", "name a CSV file of measured rows") from error
    faults = [
        _fault(path, 1, name, f"no such column{did_you_mean(name, raw.columns)}")
        for name in NEEDED
        if name not in raw.columns
    ]
    if faults:
        raise SourceError(faults, f"the columns are {', '.join(COLUMNS)}")
    typed = raw.with_columns(
        _typed(name, kind) if name in raw.columns else pl.lit(None, kind).alias(name)
        for name, kind in COLUMNS.items()
    )
    _refuse_unread(path, raw, typed)
    return typed


def measurements(frame: pl.DataFrame) -> tuple[Measurement, ...]:
    """The rows of `read_frame` that say model, GPU, lengths and load, as records in file order."""
    numbered = frame.with_row_index("line", offset=2).drop_nulls(list(NEEDED))
    columns = [name for name in COLUMNS if name in numbered.columns]
    return tuple(map(_record, numbered.select("line", *columns).iter_rows(named=True)))


def read_measurements(path: str | Path) -> tuple[Measurement, ...]:
    """The records of the CSV file at `path`."""
    return measurements(read_frame(path))


def _typed(name: str, kind: pl.DataType) -> pl.Expr:
    text = pl.col(name).str.strip_chars()
    text = pl.when(text != "").then(text)
    if kind == pl.Boolean:
        low = text.str.to_lowercase()
        states = {"true": True, "1": True, "false": False, "0": False}
        return low.replace_strict(states, default=None, return_dtype=kind).alias(name)
    if kind == pl.Int64:
        return text.cast(pl.Float64, strict=False).round().cast(kind, strict=False).alias(name)
    return text.cast(kind, strict=False).alias(name)


def _refuse_unread(path: Path, raw: pl.DataFrame, typed: pl.DataFrame) -> None:
    """SourceError for each cell that holds something which its column's type cannot."""
    faults: list[Fault] = []
    for name in COLUMNS:
        if name not in raw.columns:
            continue
        lost = typed[name].is_null() & (raw[name].fill_null("").str.strip_chars() != "")
        for row in lost.arg_true().head(5):
            cell = raw[name][row]
            kind = str(COLUMNS[name]).lower()
            faults.append(_fault(path, row + 2, name, f"{cell!r} is no {kind}"))
    if faults:
        raise SourceError(faults)


def _fault(path: Path, line: int, column: str, message: str) -> Fault:
    return Fault(file=str(path), line=line, column=1, path=column, message=message)


def _record(row: Mapping[str, Any]) -> Measurement:
    given = {
        name: value
        for name, value in row.items()
        if name not in _RENAMED and name not in _MILLISECONDS
    }
    given |= {new: row[old] for old, new in _RENAMED.items() if old in row}
    given |= {new: _seconds(row.get(old)) for old, new in _MILLISECONDS.items()}
    given["notes"] = given.get("notes") or ""
    return Measurement(**given)


_RENAMED = {
    "isl": "isl_tokens",
    "osl": "osl_tokens",
    "concurrency_or_batch": "concurrency",
    "request_throughput_per_s": "req_per_s",
    "output_tok_s_total": "output_tok_per_s",
    "total_tok_s": "total_tok_per_s",
}
_MILLISECONDS = {
    "ttft_ms": "ttft_s",
    "tpot_ms": "tpot_s",
    "itl_ms": "itl_s",
    "e2e_latency_ms": "e2e_s",
}


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
