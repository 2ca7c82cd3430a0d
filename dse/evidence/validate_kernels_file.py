"""Kernel prices against the silicon database or a table, as slices of `dse validate --kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from dse.base.errors import UserError
from dse.catalog import Catalog
from dse.cost.kernels import _coefficients
from dse.evidence.collective_slices import collective_slices
from dse.evidence.kernel_table import read_kernel_table
from dse.evidence.validate_collectives import n_crawling, unseen
from dse.evidence.validate_kernels import Scored, score, score_table, validate_kernels

__all__ = ["kernel_slices"]

Tier = Literal["target", "cross"]


def kernel_slices(
    source: str, *, tier: str, gpus: Sequence[str] = (), hold_out: Sequence[str] = ()
) -> dict[str, Any]:
    """Slices `family=…`, `gpu=…` and `framework=…` of the kernels of `source`, each over all rows
    and over those whose roofline takes 20 µs; of the silicon database's target tier also its
    collectives. UserError where nothing can be scored.
    """
    if tier not in ("auto", "target", "cross"):
        raise UserError(f"no kernel tier {tier!r} to score", "target or cross")
    asked: Tier = "cross" if tier == "cross" else "target"
    catalog = Catalog.load()
    shipped = _coefficients.gpus()
    records = [catalog.gpu(name) for name in gpus or shipped]
    held = tuple(catalog.gpu(name).name for name in hold_out)
    if source == "silicon":
        known = {name: catalog.gpu(name) for name in shipped}
        rows = validate_kernels(records, tier=asked, hold_out=held, known=known)
    else:
        rows = _of_table(Path(source), [record.name for record in records], asked, held)
    if not rows:
        raise UserError(f"no kernel rows of {source} can be scored", "see --gpu and --hold-out")
    fabrics = {record.name: catalog.fabric(record.fabric) for record in records}
    shared = list(unseen(fabrics)) if source == "silicon" and asked == "target" else []
    n_skipped = n_crawling(fabrics) if shared else 0
    return {
        "slices": [*_slices(rows), *collective_slices(shared)],
        "n_predicted": sum(len(row.measured_s) for row in rows)
        + sum(len(row.measured_s) for row in shared),
        "n_skipped": {"collectives of hosts without peer access": n_skipped} if n_skipped else {},
    }


def _of_table(path: Path, gpus: Sequence[str], tier: Tier, hold_out: Sequence[str]) -> list[Scored]:
    catalog = Catalog.load()
    found: list[Scored] = []
    for name in gpus:
        parts = list(read_kernel_table(path, name))
        found += score_table(parts, catalog.gpu(name), tier, hold_out)
    return found


def _slices(rows: Sequence[Scored]) -> Any:
    groups: dict[str, list[Scored]] = {"all": list(rows)}
    for row in rows:
        for name in (f"family={row.family}", f"gpu={row.gpu}", f"framework={row.engine}"):
            groups.setdefault(name, []).append(row)
    for name, members in groups.items():
        for metric, busy in (("kernel_s", False), ("kernel_s above 20 µs", True)):
            found = score(members, busy=busy)
            if found is not None:
                yield {
                    "slice": name,
                    "metric": metric,
                    "n": found.n_rows,
                    "mape": found.mean,
                    "median_ape": found.median,
                    "bias": found.bias,
                    "coverage_80": found.inside,
                }
