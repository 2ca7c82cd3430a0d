"""`dse query`: SQL on a store, read-only."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dse.base.errors import StoreError, UserError
from dse.cli._output import Json, console, emit_json

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    Writer = Callable[[pl.DataFrame, Path], None]

STORE = Path("dse.duckdb")
VIEWS = ("front", "best_per_gpu", "why_not", "near_misses", "answered")
"""Views of the last run of each study."""
MOST_ROWS = 100
MOST_COLUMNS = 12


def query(
    sql: str,
    /,
    *,
    store: Path = STORE,
    csv: Path | None = None,
    parquet: Path | None = None,
    rows: Annotated[int, Parameter(help="Rows that the table shows at most.")] = MOST_ROWS,
    json: Json = False,
) -> int:
    """SQL on the store, read-only: `dse query "FROM front"`.

    The views `front`, `best_per_gpu`, `why_not` and `near_misses` answer the usual questions;
    `dse query "SHOW TABLES"` lists all. It may be asked while a run writes.

    Parameters
    ----------
    sql
        One statement in DuckDB's SQL.
    store
        The store that is asked.
    csv
        Write all rows to this file.
    parquet
        Write all rows to this file.
    """
    from dse.store import Store

    if not store.exists():
        raise StoreError(f"{store}: no such store", "name one with --store, or `dse run` a study")
    found = Store.open(store).query(sql)
    for path, write in ((csv, _to_csv), (parquet, _to_parquet)):
        if path is not None:
            _write(found, path, write)
    if json:
        emit_json({"columns": found.columns, "n_rows": found.height, "rows": found.to_dicts()})
    elif csv is None and parquet is None:
        _show(found, rows)
        _tell_settings(store, sql)
    return 0


def _tell_settings(store: Path, sql: str) -> None:
    """Say on stderr which runs a view shows that asked their study with other settings."""
    from dse.store import Store

    if not re.search(rf"\b({'|'.join(VIEWS)})\b", sql, re.IGNORECASE):
        return
    last = Store.open(store).query("SELECT study, arguments FROM last_run ORDER BY study")
    for study, arguments in last.iter_rows():
        if re.search(r" --(set|scenario)\b", arguments or ""):
            sys.stderr.write(f"dse: note: the last run of {study} was {arguments}\n")


def _write(
    found: "pl.DataFrame", path: Path, write: "Callable[[pl.DataFrame, Path], None]"
) -> None:
    try:
        write(found, path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror or error}", "give another path"
        ) from error


def _to_csv(found: "pl.DataFrame", path: Path) -> None:
    """Lists and structs, which CSV has not, become JSON text."""
    import polars as pl

    nested = [name for name, dtype in found.schema.items() if dtype.is_nested()]
    texts = [
        pl.Series(name, [_text(value) for value in found[name].to_list()], dtype=pl.String)
        for name in nested
    ]
    found.with_columns(texts).write_csv(path)


def _to_parquet(found: "pl.DataFrame", path: Path) -> None:
    found.write_parquet(path)


def _text(value: object) -> str | None:
    import json

    return None if value is None else json.dumps(value, default=str)


def _show(found: "pl.DataFrame", most: int) -> None:
    """A table of at most `most` rows and what fits of the columns."""
    from rich.table import Table

    shown = found.columns[:MOST_COLUMNS]
    table = Table(*shown, box=None, pad_edge=False, header_style="bold")
    for row in found.select(shown).head(most).iter_rows():
        table.add_row(*map(_cell, row))
    out = console()
    out.print(table)
    hidden = [f"{found.height - most:,} more rows"] if found.height > most else []
    if len(found.columns) > MOST_COLUMNS:
        hidden.append(f"{len(found.columns) - MOST_COLUMNS} more columns")
    if hidden:
        out.print(f"… {' and '.join(hidden)}: ask for fewer, or write them with --csv or --parquet")


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
