"""GPUs and nodes that serve a load: whole replicas, in the nodes that the hardware comes in."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from dse.base.errors import CatalogError
from dse.catalog import Catalog
from dse.report.layouts import is_apart, layout_of

__all__ = ["gpus_for", "housed"]

Row = Mapping[str, Any]
LARGEST_NODE = 16
"""GPUs of the largest single machine; a larger scale-up domain is a rack of many."""


def gpus_for(row: Row, target_req_per_s: float) -> int | None:
    """GPUs that serve `target_req_per_s` within the SLO: whole replicas, or whole deployments
    where prefill and decode are apart. None where the goodput is not known or 0.
    """
    per_gpu = row.get("goodput_req_per_s_per_gpu")
    if not per_gpu or not row.get("n_gpus"):
        return None
    unit = row["n_gpus"] if is_apart(row) else row["n_gpus"] // (row.get("n_replicas") or 1)
    return int(ceil(target_req_per_s / (per_gpu * unit) - 1e-9) * unit)


def housed(row: Row, n_gpus: int, catalog: Catalog) -> str:
    """`7 nodes of 8`: the scale-up domains of `row`'s fabrics that house `n_gpus` GPUs of it.

    No replica is cut that fits into one domain. Empty where the catalog does not know the GPU.
    """
    needed: dict[int, int] = {}
    try:
        for size, unit, n_replicas in _pools(row, n_gpus, catalog):
            abreast = size // unit
            n = ceil(n_replicas / abreast) if abreast else ceil(n_replicas * unit / size)
            needed[size] = needed.get(size, 0) + n
    except CatalogError:
        return ""
    return " and ".join(_text(n, size) for size, n in needed.items())


def _pools(row: Row, n_gpus: int, catalog: Catalog) -> Iterator[tuple[int, int, int]]:
    """GPUs of a domain, GPUs of a replica, and replicas, of each pool."""
    copies = n_gpus / row["n_gpus"]
    for before in ("prefill_", "decode_") if is_apart(row) else ("",):
        gpu = catalog.gpu(str(row.get(f"{before}gpu") or row["gpu"]))
        name = row.get(f"{before}fabric") or row.get("fabric") or gpu.fabric
        n_replicas = row.get(f"{before}n_replicas") or 1
        unit = layout_of(row, before).n_gpus
        yield catalog.fabric(str(name)).scale_up.n_gpus, unit, round(copies * n_replicas)


def _text(n: int, size: int) -> str:
    what = "node" if size <= LARGEST_NODE else "scale-up domain"
    return f"{n:,} {what}{'' if n == 1 else 's'} of {size}"
