"""Fits collective constants to the silicon database: NCCL, the engines' all-reduce, DeepEP.

Small numbers of constants, so that what they mean can be read off the file. Run it as
`python -m dse.evidence.calibrate_collectives`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from dse.catalog import Catalog
from dse.cost.collectives._base import Exchange, Protocol
from dse.cost.collectives._coefficients import path
from dse.cost.collectives.ep_dispatch import LOW_LATENCY_TOKENS
from dse.cost.kernels import _coefficients as kernels
from dse.evidence.collective_rows import (
    BACKENDS,
    EXCHANGES,
    NORMAL,
    ExchangeKind,
    Exchanges,
    Messages,
    crawling,
    engine_messages,
    exchange_rows,
    exchange_tables,
    library_messages,
)
from dse.evidence.exchange_links import waiting
from dse.evidence.fit_exchange import fit_exchanges
from dse.evidence.fit_ladder import fit_ladder
from dse.evidence.silicon import Table, tables
from dse.hardware.fabric import Fabric

KINDS = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
NETWORK_GPU = "H100-SXM"  # the only one whose exchange was measured across nodes
# All-reduce of eight MI300X on a full mesh of xGMI links, of which no sweep is in the database: a
# ring over one link, which is what static batches of Llama 3.1 70B and 405B on vLLM both show (the
# same times at the same message: 15 us and the ring's bytes at 64 GB/s, up to 4 MB;
# ROCm/vllm docs/dev-docker/README.md), then all links at the 310 GB/s of
# https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi/README.html. A ring takes
# all that two ranks have and a seventh of what eight have.
MESH_ALL_REDUCE = (
    Protocol(base_s=15e-6, per_rank_s=0.0, efficiency=1.0, efficiency_step=-3.0 / 7.0),
    Protocol(base_s=100e-6, per_rank_s=0.0, efficiency=0.7),
)
MESH_BYTES_PER_S = 448e9
MESH_START_S = 20e-6  # of its other collectives: as the fabric's file assumes
MESH_LIKE = "NVLink4-8"


def calibrate_collectives(
    fabrics: Mapping[str, Fabric], into: Path | None = None
) -> dict[str, Any]:
    """Fit every measured fabric (`fabrics`: GPU name to its catalog fabric) and write the file."""
    network = {backend: own_exchanges(backend, NETWORK_GPU, fabrics) for backend in BACKENDS}
    distinct = {fabric.name: gpu for gpu, fabric in reversed(list(fabrics.items()))}
    found = [_fabric(gpu, fabrics, network) for gpu in distinct.values()]
    measured = [each for each in found if each is not None]
    source = (
        "aiconfigurator-core 0.12.0 (Apache-2.0), microsoft/vidur, DeepEP README, ROCm/vllm "
        "dev-docker README (xGMI); own fit"
    )
    data = {
        "provenance": {"source": source, "fitted": date.today().isoformat()},
        "fabrics": [*measured, *(_mesh(each) for each in measured if each["fabric"] == MESH_LIKE)],
    }
    (into or path()).write_text(json.dumps(data, indent=1) + "\n")
    return data


def _fabric(
    gpu: str, fabrics: Mapping[str, Fabric], network: Mapping[str, Mapping[ExchangeKind, Exchange]]
) -> dict[str, Any] | None:
    fabric, rows = fabrics[gpu], library_messages(gpu)
    rate = fabric.scale_up.bytes_per_s
    if not rows:
        return None
    ladders = {KINDS[op]: _fit(rows[op], rate) for op in KINDS if op in rows}
    reduced = {
        table.engine: _fit(engine_messages(table), rate, custom=True)
        for table in tables("custom_allreduce")
        if table.gpu == gpu
    }
    reduced["nccl"] = _fit(rows["all_reduce"], rate)
    own = {backend: own_exchanges(backend, gpu, fabrics) for backend in BACKENDS}
    exchanges = {
        kind: [_rounded(_merge(own[b].get(kind, network[b][kind]), network[b][kind])) for b in own]
        for kind in EXCHANGES
    }
    return {
        "fabric": fabric.name,
        "kind": fabric.kind,
        "bytes_per_s": rate,
        "all_reduce": {engine: [_rounded(p) for p in ladder] for engine, ladder in reduced.items()},
        "ladders": {kind: [_rounded(p) for p in ladder] for kind, ladder in ladders.items()},
        "exchanges": exchanges,
    }


def _mesh(like: Mapping[str, Any]) -> dict[str, Any]:
    """A full mesh of xGMI links: its own all-reduce, else the efficiencies of `like`."""
    ladders = {
        kind: [row | {"base_s": max(row["base_s"], MESH_START_S)} for row in ladder]
        for kind, ladder in like["ladders"].items()
    }
    return {
        "fabric": "xGMI",
        "kind": "xgmi",
        "bytes_per_s": MESH_BYTES_PER_S,
        "all_reduce": {"nccl": [_rounded(each) for each in MESH_ALL_REDUCE]},
        "ladders": ladders,
        "exchanges": like["exchanges"],
    }


def _fit(messages: Messages, rate: float, *, custom: bool = False) -> tuple[Protocol, ...]:
    return fit_ladder(messages.take(~crawling(messages, rate)), rate, custom=custom)


def own_exchanges(
    backend: str, gpu: str, fabrics: Mapping[str, Fabric]
) -> dict[ExchangeKind, Exchange]:
    """Constants of one backend on one GPU, by direction: of its sweep with most node counts."""
    found = exchange_tables(backend, gpu)
    if not found:
        return {}
    rows = {kind: trusted(found[-1], kind, fabrics[gpu]) for kind in EXCHANGES}
    return fit_exchanges(rows, fabrics[gpu], deduplicates=backend == NORMAL)


def trusted(table: Table, kind: ExchangeKind, fabric: Fabric) -> Exchanges:
    """Rows of a DeepEP table to fit to: of the normal kernels those of more tokens than run under
    low latency, and not of node counts on which they wait.
    """
    rows = exchange_rows(table, kind)
    if table.name != NORMAL:
        return rows
    return rows.take(~waiting(kind, rows, fabric) & (rows.tokens > LOW_LATENCY_TOKENS))


def _merge(own: Exchange, network: Exchange) -> Exchange:
    """In-domain constants of the fabric itself, network constants of the multi-node sweep."""
    return Exchange(
        base_s=own.base_s,
        network_s=network.network_s,
        fan_out_s=network.fan_out_s,
        round_s=network.round_s,
        efficiency=own.efficiency,
        network_efficiency=network.network_efficiency,
        deduplicates=network.deduplicates,
    )


def _rounded(each: Protocol | Exchange) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(each).items() if value is not None}
    return {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in fields.items()}


def main() -> None:
    """Refit every measured fabric of the catalog."""
    catalog = Catalog.load()
    calibrate_collectives(
        {name: catalog.fabric(catalog.gpu(name).fabric) for name in kernels.gpus()}
    )


if __name__ == "__main__":
    main()
