"""The points that a page draws: all of them, or the best of each cell of a grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import polars as pl

from dse.base.units import counted
from dse.report.layouts import described
from dse.report.quantities import Quantity
from dse.report.subject import Subject

__all__ = ["Drawn", "drawn", "span", "spans_decades", "with_words"]

MOST = 2500
_CELLS = 48
_DECADES = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """`rows` for the charts and a `note` where they stand for more points than they are."""

    rows: pl.DataFrame
    note: str = ""


def drawn(results: pl.DataFrame, subject: Subject, columns: list[str]) -> Drawn:
    """The rows of `results` that have both axes, with `columns`; at most about `MOST`.

    Where there are more, the front stays whole and of the others each cell of a grid over both
    axes keeps, for each GPU and layout family, one point; the note says how many it stands for.
    """
    x, y = subject.x, subject.y
    absent = [each.column for each in (x, y) if each.column not in results.columns]
    results = results.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)
    finite = pl.all_horizontal(pl.col(each.column).is_finite() for each in (x, y))
    rows = results.filter(finite.fill_null(value=False))
    n_blank = results.height - rows.height
    has = "has" if n_blank == 1 else "have"
    notes = [f"{counted(n_blank, 'point')} {has} no value on an axis."] if n_blank else []
    if rows.height > MOST:
        whole = rows.height
        rows = _thinned(rows, x, y)
        notes.append(
            f"{rows.height:,} of {whole:,} points are drawn: the front whole, of the others one "
            "in each cell of a grid; all are in the store."
        )
    keep = [name for name in dict.fromkeys(columns) if name in rows.columns]
    return Drawn(rows=rows.select(keep), note=" ".join(notes))


def spans_decades(values: pl.Series) -> bool:
    """Whether positive values spread so far that a logarithmic axis reads better."""
    found = values.drop_nulls().filter(values.drop_nulls() > 0)
    if found.is_empty() or found.len() < values.drop_nulls().len():
        return False
    return float(found.max()) / float(found.min()) > _DECADES  # type: ignore[arg-type]


def span(values: pl.Series, each: Quantity, bounds: Sequence[float] = ()) -> tuple[float, float]:
    """The least and the greatest of values in their shown unit, near bounds taken in."""
    found = [value * each.scale for value in values.drop_nulls() if isfinite(value)]
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    near = [bound for bound in bounds if low / 2 <= bound <= 2 * high]
    low, high = min([low, *near]), max([high, *near])
    return (low, high) if low < high else (low * 0.9, high * 1.1 or 1.0)


def _thinned(rows: pl.DataFrame, x: Quantity, y: Quantity) -> pl.DataFrame:
    members = rows.filter("on_front")
    others = rows.filter(~pl.col("on_front"))
    cells = _CELLS
    order = pl.col(y.column) if y.better == "min" else -pl.col(y.column)
    named = list(dict.fromkeys([x.column, y.column, "gpu", "family", "point_id"]))
    ranked = others.select(named).with_row_index("_row").sort(order, "point_id")
    while True:
        grid = ranked.with_columns(_cell(ranked, x, cells, "_x"), _cell(ranked, y, cells, "_y"))
        kept = grid.unique(["_x", "_y", "gpu", "family"], keep="first", maintain_order=True)
        if members.height + kept.height <= MOST or cells <= 6:
            return pl.concat([members.head(MOST), others[kept["_row"]]])
        cells = cells * 3 // 4


def _cell(rows: pl.DataFrame, each: Quantity, cells: int, name: str) -> pl.Expr:
    value = pl.col(each.column)
    if spans_decades(rows[each.column]):
        value = value.log()
    low, high = value.min(), value.max()
    return ((value - low) / (high - low) * cells).fill_nan(0).cast(pl.Int32).alias(name)


def with_words(results: pl.DataFrame) -> pl.DataFrame:
    """`results` with layouts in words, and `gpu` filled where prefill and decode differ in it."""
    if "gpu" in results.columns or "prefill_gpu" not in results.columns:
        return described(results)
    pair = pl.format("{} → {}", "prefill_gpu", "decode_gpu")
    return described(results.with_columns(gpu=pair))
