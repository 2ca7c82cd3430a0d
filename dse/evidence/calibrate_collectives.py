"""Fits collective constants to the silicon database: NCCL, the engines' all-reduce, DeepEP.

Each ladder of protocols is fitted on the logarithm of time, robustly, from several starts; small
numbers of constants, so that what they mean can be read off the file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.optimize import least_squares

from dse.cost.collectives._base import Exchange, Protocol, Span, fastest
from dse.cost.collectives._coefficients import path
from dse.cost.collectives.ep_dispatch import backend_seconds
from dse.evidence.silicon import Table, tables
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective

Array = npt.NDArray[np.floating[Any]]
ELEMENT_BYTES = {"half": 2.0, "bfloat16": 2.0, "int8": 1.0}
KINDS = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
RING = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
# Below this share of the link, large messages were timed on a host without peer access.
LEAST_LINK_SHARE = 0.25
LARGE_BYTES = 2**24
BACKENDS = ("wideep_deepep_ll", "wideep_deepep_normal")
EXCHANGES = ("ep_dispatch", "ep_combine")
WORST_NODES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Measured collectives: `size` (B, logical message), `ranks`, `seconds`."""

    kind: str
    size: Array
    ranks: npt.NDArray[np.int64]
    seconds: Array

    def take(self, index: Any) -> "Messages":
        """The rows of `index`."""
        return Messages(
            kind=self.kind,
            size=self.size[index],
            ranks=self.ranks[index],
            seconds=self.seconds[index],
        )


def nccl_messages(table: Table) -> dict[str, Messages]:
    """Rows of one NCCL table by its operation; 16-bit, sizes in bytes."""
    frame = table.scan().filter(pl.col("nccl_dtype") == "half").collect()
    return {
        str(op): _messages(str(op), part, 2.0)
        for (op,), part in frame.group_by("op_name", maintain_order=True)
    }


def engine_messages(table: Table) -> Messages:
    """Rows of one engine's all-reduce as captured in a graph (eager rows time the host)."""
    frame = table.scan().collect()
    eager = pl.col("kernel_source").str.to_lowercase().str.contains("eager")
    return _messages("all_reduce", frame.filter(~eager), 2.0)


def _messages(kind: str, part: pl.DataFrame, element: float) -> Messages:
    part = part.filter(pl.col("latency") > 0).sort("num_gpus", "message_size")
    return Messages(
        kind=kind,
        size=part["message_size"].to_numpy() * element,
        ranks=part["num_gpus"].to_numpy().astype(np.int64),
        seconds=part["latency"].to_numpy() * 1e-3,
    )


def crawling(messages: Messages, bytes_per_s: float) -> npt.NDArray[np.bool_]:
    """Rows of rank counts whose large messages reach less than `LEAST_LINK_SHARE` of the link."""
    share = _ring(messages) / bytes_per_s / messages.seconds
    bad = np.zeros(len(share), dtype=bool)
    for ranks in np.unique(messages.ranks):
        large = (messages.ranks == ranks) & (messages.size >= LARGE_BYTES)
        if large.any() and np.median(share[large]) < LEAST_LINK_SHARE:
            bad |= messages.ranks == ranks
    return bad


def fit_ladder(messages: Messages, bytes_per_s: float, *, custom: bool) -> tuple[Protocol, ...]:
    """Three protocols, the first one-shot where `custom`."""
    volumes = ("one_shot" if custom else "ring", "ring", "ring")
    slow, fast = messages.seconds.min(), messages.seconds.max()
    starts = [
        [slow, 0.05 * slow, 0.5, 0, 3 * slow, 0.3 * slow, 0.5, 0, 6 * slow, slow, 0.75, 0.05],
        [slow, 0.2 * slow, 0.1, 0, 2 * slow, 0.2 * slow, 0.3, 0, 4 * slow, 0.5 * slow, 0.7, 0.0],
    ]
    low = [0.1 * slow, 0, 0.01, -0.3] * 3
    high = [max(fast, 1.01 * slow), 20 * slow, 1.0, 0.3] * 3

    def residual(values: Array) -> Array:
        guess = ladder_seconds(_unpack(values, volumes), messages, bytes_per_s)
        error: Array = np.log(guess / messages.seconds)
        return error

    found = [
        least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=0.05)
        for start in starts
    ]
    return _unpack(min(found, key=lambda each: each.cost).x, volumes)


def ladder_seconds(ladder: Sequence[Protocol], messages: Messages, bytes_per_s: float) -> Array:
    """Seconds that `ladder` gives `messages`."""
    seconds = np.empty_like(messages.seconds)
    ring = _ring(messages)
    for ranks in np.unique(messages.ranks):
        rows = messages.ranks == ranks
        one_shot = (ranks - 1.0) * messages.size[rows]
        seconds[rows] = fastest(ladder, int(ranks), ring[rows], one_shot, bytes_per_s)
    return seconds


def _ring(messages: Messages) -> Array:
    moved: Array = RING[messages.kind] * (messages.ranks - 1.0) / messages.ranks * messages.size
    return moved


def _unpack(values: Any, volumes: Sequence[str]) -> tuple[Protocol, ...]:
    return tuple(
        Protocol(
            base_s=float(values[4 * i]),
            per_rank_s=float(values[4 * i + 1]),
            efficiency=float(values[4 * i + 2]),
            efficiency_step=float(values[4 * i + 3]),
            volume=volume,  # type: ignore[arg-type]
        )
        for i, volume in enumerate(volumes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """DeepEP rows: `nodes` of eight GPUs; `copy_bytes` is what a rank's tokens weigh once."""

    nodes: Array
    copy_bytes: Array
    top_k: Array
    seconds: Array

    def take(self, index: Any) -> "Exchanges":
        """The rows of `index`."""
        return Exchanges(
            nodes=self.nodes[index],
            copy_bytes=self.copy_bytes[index],
            top_k=self.top_k[index],
            seconds=self.seconds[index],
        )


def exchange_rows(frame: pl.DataFrame, kind: str) -> Exchanges:
    """Dispatch (FP8, one byte an element) or combine (16-bit) rows of a DeepEP table (µs).

    The normal kernels are swept over SMs, of which the best counts. Their eight-node rows are left
    out: 22 of 50 GB/s contradicts the 51 that DeepEP publishes for 64 ranks.
    """
    element, column = (1.0, "dispatch") if kind == "ep_dispatch" else (2.0, "combine")
    if f"{column}_transmit_us" in frame.columns:
        total = pl.col(f"{column}_transmit_us") + pl.col(f"{column}_notify_us")
        frame = frame.filter(pl.col("node_num") < WORST_NODES)
        keys = ("node_num", "num_token", "num_topk", "num_experts", "hidden_size")
        frame = frame.group_by(keys).agg(total.min().alias(f"{column}_avg_t_us")).sort(keys)
    tokens = frame["num_token"].to_numpy().astype(float)
    return Exchanges(
        nodes=frame["node_num"].to_numpy().astype(float),
        copy_bytes=tokens * frame["hidden_size"].to_numpy() * element,
        top_k=frame["num_topk"].to_numpy().astype(float),
        seconds=frame[f"{column}_avg_t_us"].to_numpy() * 1e-6,
    )


def exchange_seconds(each: Exchange, rows: Exchanges, fabric: Fabric) -> Array:
    """Seconds that a backend gives `rows`."""
    seconds = np.empty_like(rows.seconds)
    for nodes in np.unique(rows.nodes):
        for top_k in np.unique(rows.top_k):
            some = (rows.nodes == nodes) & (rows.top_k == top_k)
            ranks = int(8 * nodes)
            op = Collective(
                kind="ep_dispatch", n_bytes=rows.copy_bytes[some], n_ranks=ranks, top_k=int(top_k)
            )
            span = Span(n=ranks, inner=8, domains=int(nodes))
            seconds[some] = backend_seconds(op, fabric, span, each)
    return seconds


def fit_exchange(rows: Exchanges, fabric: Fabric, *, deduplicates: bool = False) -> Exchange:
    """Constants of the low-latency backend on `fabric`, or of the normal one (deduplicating)."""

    def guess(values: Sequence[float]) -> Exchange:
        return _exchange(values, deduplicates)

    def residual(values: Sequence[float]) -> Array:
        error: Array = np.log(exchange_seconds(guess(values), rows, fabric) / rows.seconds)
        return error

    bounds = ([0, 0, 0, 0.05, 0.05], [99e-6, 99e-6, 99e-6, 1.0, 1.0])
    start = [12e-6, 5e-6, 3e-6, 0.5, 0.9]
    found = least_squares(
        residual, start, bounds=bounds, loss="soft_l1", f_scale=0.05, x_scale=start
    )
    return guess(found.x)


def _exchange(values: Sequence[float], deduplicates: bool) -> Exchange:
    base, network, domain, inner, outer = map(float, values)
    return Exchange(
        base_s=base,
        network_s=network,
        domain_s=domain,
        efficiency=inner,
        network_efficiency=outer,
        deduplicates=deduplicates,
    )


def calibrate_collectives(
    fabrics: Mapping[str, Fabric], into: Path | None = None
) -> dict[str, Any]:
    """Fit every measured fabric (`fabrics`: GPU name to its catalog fabric) and write the file."""
    network = {
        backend: _exchanges(backend, "H100-SXM", fabrics["H100-SXM"], every_version=True)
        for backend in BACKENDS
    }
    distinct = {fabric.name: (gpu, fabric) for gpu, fabric in reversed(list(fabrics.items()))}
    found = [_fabric(gpu, fabric, network) for gpu, fabric in distinct.values()]
    source = "aiconfigurator-core 0.12.0 (Apache-2.0), microsoft/vidur, DeepEP README; own fit"
    data = {
        "provenance": {"source": source, "fitted": date.today().isoformat()},
        "fabrics": [each for each in found if each is not None],
    }
    (into or path()).write_text(json.dumps(data, indent=1) + "\n")
    return data


def _fabric(
    gpu: str, fabric: Fabric, network: Mapping[str, Mapping[str, Exchange]]
) -> dict[str, Any] | None:
    rate = fabric.scale_up.bytes_per_s
    libraries = [table for table in tables("nccl", every_version=True) if table.gpu == gpu]
    if not libraries:
        return None
    rows = nccl_messages(max(libraries, key=lambda table: (table.n_rows, table.version)))
    ladders = {KINDS[op]: _fit(rows[op], rate) for op in KINDS if op in rows}
    reduced = {
        table.engine: _fit(engine_messages(table), rate, custom=True)
        for table in tables("custom_allreduce")
        if table.gpu == gpu
    }
    reduced["nccl"] = _fit(rows["all_reduce"], rate)
    own = {backend: _exchanges(backend, gpu, fabric) for backend in BACKENDS}
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


def _fit(messages: Messages, rate: float, *, custom: bool = False) -> tuple[Protocol, ...]:
    return fit_ladder(messages.take(~crawling(messages, rate)), rate, custom=custom)


def _exchanges(
    backend: str, gpu: str, fabric: Fabric, *, every_version: bool = False
) -> dict[str, Exchange]:
    """Constants of one backend on one GPU: of the sweep with most nodes, or of its newest table."""
    found = [t for t in tables(backend, every_version=every_version) if t.gpu == gpu]
    if not found:
        return {}
    frames = [table.scan().collect() for table in found]
    frame = max(frames, key=lambda each: each["node_num"].n_unique())
    normal = backend == "wideep_deepep_normal"
    return {
        kind: fit_exchange(exchange_rows(frame, kind), fabric, deduplicates=normal)
        for kind in EXCHANGES
    }


def _merge(own: Exchange, network: Exchange) -> Exchange:
    """In-domain constants of the fabric itself, network constants of the multi-node sweep."""
    return Exchange(
        base_s=own.base_s,
        network_s=network.network_s,
        domain_s=network.domain_s,
        efficiency=own.efficiency,
        network_efficiency=network.network_efficiency,
        deduplicates=network.deduplicates,
    )


def _rounded(each: Protocol | Exchange) -> dict[str, Any]:
    fields = asdict(each)
    return {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in fields.items()}
