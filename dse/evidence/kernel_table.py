"""Kernel measurements in the documented schema: one row a kernel, columns named as the op's fields.

Columns (CSV or Parquet): `family` (gemm, moe, prefill_attention, …), `engine`, `implementation`,
`latency_us`, and the fields of that family's op in `dse.model.ops` (`m`, `n`, `k`, `weights`,
`activations` for a GEMM); `version` and `compute` (`bf16`, `fp8`) are optional. A family's fields
may be empty on other families' rows.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import polars as pl

from dse.base.errors import UserError
from dse.cost.work import work
from dse.evidence.kernels import Slice
from dse.hardware.dtype import DType
from dse.model import ops

OPS = {
    op.family: op
    for op in (
        ops.Gemm, ops.GroupedGemm, ops.PrefillAttention, ops.DecodeAttention, ops.MLADecode,
        ops.MLAPrefill, ops.Indexer, ops.LinearAttention, ops.Elementwise,
    )
}  # fmt: skip
MAY_BE_ZERO = ("cached_tokens",)
NEEDED = ("family", "engine", "implementation", "latency_us")


def read_kernel_table(path: Path, gpu: str) -> Iterator[Slice]:
    """The slices of a table measured on `gpu` (a catalog name). UserError names what is missing."""
    frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path)
    missing = [name for name in NEEDED if name not in frame.columns]
    if missing:
        raise UserError(f"{path}: no column {', '.join(missing)}", f"give {', '.join(NEEDED)}")
    unknown = set(frame["family"].unique()) - set(OPS)
    if unknown:
        raise UserError(f"{path}: no family {sorted(unknown)}", f"one of {', '.join(OPS)}")
    optional = {"version": "", "compute": ""}
    absent = {k: pl.lit(v) for k, v in optional.items() if k not in frame.columns}
    measured = frame["latency_us"].cast(pl.Float64, strict=False)
    if bad := frame["latency_us"].filter(measured.is_null()).drop_nulls().to_list():
        raise UserError(f"{path}: latency_us {bad[0]!r} is no number", "give microseconds")
    frame = frame.with_columns(measured, **absent)
    _refuse_bad(path, frame)
    for (family,), part in frame.group_by("family", maintain_order=True):
        yield from _slices(path, gpu, str(family), part)


def _refuse_bad(path: Path, frame: pl.DataFrame) -> None:
    """UserError where a row has no positive time, or lacks a size that its family needs."""
    numbered = frame.with_row_index("row", offset=1)
    bad = [numbered.filter(~_is_positive("latency_us")).select("row")]
    for (family,), part in numbered.group_by("family"):
        hints = get_type_hints(OPS[str(family)])
        for field in dataclasses.fields(OPS[str(family)]):
            name = field.name
            if name in part.columns and field.default is dataclasses.MISSING:
                given = _is_positive(name, zero=name in MAY_BE_ZERO)
                if _is_fixed(hints[name]):
                    given = pl.col(name).is_not_null()
                bad.append(part.filter(~given).select("row"))
    rows = pl.concat(bad)["row"].unique().sort().to_list()
    if rows:
        named = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
        raise UserError(
            f"{path}: {len(rows)} rows without a positive latency_us or a size of their op: "
            f"{named}",
            "mend or remove them; rows count from 1 below the head",
        )


def _is_positive(name: str, *, zero: bool = False) -> pl.Expr:
    value = pl.col(name).cast(pl.Float64, strict=False)
    known = value.is_finite().fill_null(value=False)
    return known & ((value >= 0.0) if zero else (value > 0.0)).fill_null(value=False)


def _slices(path: Path, gpu: str, family: str, part: pl.DataFrame) -> Iterator[Slice]:
    record: Any = OPS[family]
    hints = get_type_hints(record)
    fields = list(dataclasses.fields(record))
    for field in fields:
        if field.name not in part.columns and field.default is dataclasses.MISSING:
            raise UserError(f"{path}: {family} needs column {field.name}", "add it to the table")
    fixed = [f.name for f in fields if f.name in part.columns and _is_fixed(hints[f.name])]
    shapes = [f.name for f in fields if f.name in part.columns and f.name not in fixed]
    keys = ["engine", "version", "implementation", "compute", *fixed]
    for values, some in part.group_by(keys, maintain_order=True):
        labels = dict(zip(keys, values, strict=True))
        try:
            kept: dict[str, Any] = {name: _value(hints[name], labels[name]) for name in fixed}
        except (ValueError, TypeError) as fault:
            raise UserError(
                f"{path}: {family}: {fault}", "give what the op's field takes"
            ) from None
        op = record(**kept, **{name: some[name].cast(pl.Float64).to_numpy() for name in shapes})
        yield Slice(
            family=family,
            gpu=gpu,
            engine=str(labels["engine"]),
            version=str(labels["version"] or ""),
            implementation=str(labels["implementation"]),
            compute=str(labels["compute"] or work(op).compute),
            op=op,
            seconds=some["latency_us"].cast(pl.Float64).to_numpy() * 1e-6,
            group=some.select(pl.struct(shapes[1:] or shapes).rank("dense")).to_series().to_numpy(),
            cohort=np.zeros(len(some), dtype=np.int64),
            usable=np.ones(len(some), dtype=bool),
        )


def _is_fixed(hint: Any) -> bool:
    return hint in (DType, bool, str)


def _value(hint: Any, text: Any) -> Any:
    return DType(text) if hint is DType else hint(text)
