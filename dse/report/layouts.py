"""A result row's deployment in words: its layout, the family it belongs to, one sentence."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from dse.serving.layout import Layout

__all__ = [
    "FAMILIES",
    "busy_replicas",
    "described",
    "family",
    "in_flight",
    "is_apart",
    "label",
    "layout_of",
    "sentence",
]

Row = Mapping[str, Any]

FAMILIES = ("single GPU", "TP", "TP + PP", "TEP", "EP + DP attention", "DP attention", "apart")
"""Layout families in the order in which charts give them a shape; `apart` is disaggregated."""


def is_apart(row: Row) -> bool:
    """Whether prefill and decode run on pools of their own."""
    return row.get("prefill_tp") is not None


def label(row: Row) -> str:
    """`TP8 ×2`, or `P TP4 ×2 | D EP16+DPA` where prefill and decode are apart."""
    if is_apart(row):
        return f"P {_one(row, 'prefill_')} | D {_one(row, 'decode_')}"
    return _one(row, "")


def busy_replicas(row: Row) -> int:
    """Replicas that hold running requests: all of them, or those that decode."""
    return row.get("decode_n_replicas" if is_apart(row) else "n_replicas") or 1


def in_flight(row: Row) -> float | None:
    """Requests in flight: of a closed loop as asked, else by Little's law from the served rate and
    the mean E2E latency; None where neither is known.
    """
    if row.get("concurrency"):
        return float(row["concurrency"])
    rate, e2e_s = row.get("request_per_s"), row.get("e2e_mean_s")
    return rate * e2e_s if rate and e2e_s else None


def family(row: Row) -> str:
    """The layout family, one of `FAMILIES`."""
    if is_apart(row):
        return "apart"
    layout = layout_of(row, "")
    if layout.dp > 1:
        return "EP + DP attention" if layout.ep > 1 else "DP attention"
    if layout.ep > 1:
        return "TEP"
    if layout.pp > 1:
        return "TP + PP"
    return "TP" if layout.tp > 1 else "single GPU"


def sentence(row: Row) -> str:
    """The deployment as a reader would say it: model, precision, GPUs, layout, engine."""
    weights, kv = row.get("weights"), row.get("kv")
    precision = f" in {weights} with {kv} KV" if weights and kv else ""
    engine = f" under {row['engine']}" if row.get("engine") else ""
    gpus = f"{row.get('n_gpus')} × {row.get('gpu')}" if row.get("gpu") else _gpus_apart(row)
    return f"{row.get('model')}{precision} on {gpus}, {_replicas(row)}{engine}"


def described(results: pl.DataFrame) -> pl.DataFrame:
    """`results` with `layout`, `family`, `precision` (weights / KV) and `context` (ISL / OSL)."""
    names = [
        name
        for name in results.columns
        if name.removeprefix("prefill_").removeprefix("decode_") in _DEGREES
    ]
    if results.is_empty():
        none = pl.lit(None, pl.String)
        return results.with_columns(layout=none, family=none, precision=none, context=none)
    distinct = results.select(names).unique(maintain_order=True)
    words = [
        {**row, "layout": label(row), "family": family(row)}
        for row in distinct.iter_rows(named=True)
    ]
    schema: dict[str, Any] = {name: results.schema[name] for name in names}
    schema |= {"layout": pl.String, "family": pl.String}
    frame = pl.DataFrame(words, schema=schema, orient="row")
    joined = results.drop("layout", "family", strict=False).join(
        frame, on=names, how="left", nulls_equal=True, maintain_order="left"
    )
    return joined.with_columns(
        precision=_pair(joined, "weights", "kv"), context=_pair(joined, "isl_tokens", "osl_tokens")
    )


_DEGREES = ("tp", "dp", "ep", "moe_tp", "pp", "cp", "n_replicas")


def _pair(frame: pl.DataFrame, first: str, second: str) -> pl.Expr:
    if first not in frame.columns or second not in frame.columns:
        return pl.lit(None, pl.String)
    return pl.format("{} / {}", pl.col(first).cast(pl.String), pl.col(second).cast(pl.String))


def layout_of(row: Row, prefix: str) -> Layout:
    """The layout of a row's replica; `prefix` is `prefill_` or `decode_` where they are apart."""
    degrees = {name: row.get(f"{prefix}{name}") or 1 for name in ("tp", "dp", "ep", "pp", "cp")}
    return Layout(**degrees)


def _one(row: Row, prefix: str) -> str:
    replicas = row.get(f"{prefix}n_replicas") or 1
    text = layout_of(row, prefix).label()
    return f"{text} ×{replicas}" if replicas > 1 else text


def _replicas(row: Row) -> str:
    if is_apart(row):
        prefill, decode = (_count(row, f"{role}_", role) for role in ("prefill", "decode"))
        return f"{prefill} and {decode}"
    return _count(row, "", "")


def _count(row: Row, prefix: str, role: str) -> str:
    replicas = row.get(f"{prefix}n_replicas") or 1
    what = f"{role} replica" if role else "replica"
    return f"{replicas} {what}{'s' if replicas > 1 else ''} of {layout_of(row, prefix).label()}"


def _gpus_apart(row: Row) -> str:
    return f"{row.get('prefill_gpu')} for prefill and {row.get('decode_gpu')} for decode"
