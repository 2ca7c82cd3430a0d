"""Measured collectives of the silicon database: NCCL, the engines' own all-reduce, DeepEP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from dse.evidence.silicon import Table, tables

Array = npt.NDArray[np.floating[Any]]
RING = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}
SIXTEEN_BIT = 2.0
# Below this share of the link, large messages were timed on a host without peer access.
LEAST_LINK_SHARE = 0.25
LARGE_BYTES = 2**24
ExchangeKind = Literal["ep_dispatch", "ep_combine"]
EXCHANGES: tuple[ExchangeKind, ...] = ("ep_dispatch", "ep_combine")
LOW_LATENCY, NORMAL = BACKENDS = ("wideep_deepep_ll", "wideep_deepep_normal")
# Ranks of a node of the DeepEP tables. GB200 and GB300 do not say whether theirs is a tray of four:
# as eight ranks their kernels reach the shares of NVLink that those of B200 reach (normal dispatch
# 0.32 and 0.31), as four 0.19.
NODE_GPUS = 8
# DeepEP's benchmarks make one group of experts a node and route a token to four at most, as
# DeepSeek-V3 does (tests/test_internode.py, `--num-topk-groups`, default `min(num_nodes, 4)`).
TOP_GROUPS = 4


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

    @property
    def ring(self) -> Array:
        """Bytes that each rank sends round a ring."""
        moved: Array = RING[self.kind] * (self.ranks - 1.0) / self.ranks * self.size
        return moved


def library_messages(gpu: str) -> dict[str, Messages]:
    """NCCL rows of `gpu` by operation: its largest table, 16-bit; empty where there is none."""
    found = [table for table in tables("nccl", every_version=True) if table.gpu == gpu]
    if not found:
        return {}
    frame = max(found, key=lambda table: (table.n_rows, table.version)).scan()
    frame = frame.filter(pl.col("nccl_dtype") == "half")
    parts = frame.collect().group_by("op_name", maintain_order=True)
    return {str(op): _messages(str(op), part) for (op,), part in parts}


def engine_messages(table: Table) -> Messages:
    """Rows of one engine's all-reduce as captured in a graph (eager rows time the host)."""
    frame = table.scan().collect()
    eager = pl.col("kernel_source").str.to_lowercase().str.contains("eager")
    return _messages("all_reduce", frame.filter(~eager))


def _messages(kind: str, part: pl.DataFrame) -> Messages:
    part = part.filter(pl.col("latency") > 0).sort("num_gpus", "message_size")
    return Messages(
        kind=kind,
        size=part["message_size"].to_numpy() * SIXTEEN_BIT,
        ranks=part["num_gpus"].to_numpy().astype(np.int64),
        seconds=part["latency"].to_numpy() * 1e-3,
    )


def crawling(messages: Messages, bytes_per_s: float) -> npt.NDArray[np.bool_]:
    """Rows of rank counts whose large messages reach less than `LEAST_LINK_SHARE` of the link."""
    share = messages.ring / bytes_per_s / messages.seconds
    bad = np.zeros(len(share), dtype=bool)
    for ranks in np.unique(messages.ranks):
        large = (messages.ranks == ranks) & (messages.size >= LARGE_BYTES)
        if large.any() and np.median(share[large]) < LEAST_LINK_SHARE:
            bad |= messages.ranks == ranks
    return bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """DeepEP rows: `nodes` of `NODE_GPUS` ranks; `copy_bytes` is what the `tokens` of a rank weigh
    once.
    """

    nodes: Array
    tokens: Array
    copy_bytes: Array
    top_k: Array
    seconds: Array

    def take(self, index: Any) -> "Exchanges":
        """The rows of `index`."""
        return Exchanges(
            nodes=self.nodes[index],
            tokens=self.tokens[index],
            copy_bytes=self.copy_bytes[index],
            top_k=self.top_k[index],
            seconds=self.seconds[index],
        )


def exchange_tables(backend: str, gpu: str) -> Sequence[Table]:
    """The DeepEP tables of `gpu`, the one of most node counts last."""
    found = [table for table in tables(backend, every_version=True) if table.gpu == gpu]
    return sorted(found, key=lambda table: (n_nodes(table), table.version))


def n_nodes(table: Table) -> int:
    """How many node counts a DeepEP table was measured on."""
    return int(table.scan().select(pl.col("node_num").n_unique()).collect().item())


def exchange_rows(table: Table, kind: str, *, waits: bool = True) -> Exchanges:
    """Dispatch (FP8, one byte an element) or combine (16-bit) rows of a DeepEP table (µs).

    The normal kernels are swept over SMs, of which the best counts. They are timed in two parts:
    the transfer, and before it a notification that `waits` for every rank, counted by default.
    """
    frame = table.scan().collect()
    element, column = (1.0, "dispatch") if kind == "ep_dispatch" else (SIXTEEN_BIT, "combine")
    if f"{column}_transmit_us" in frame.columns:
        total = pl.col(f"{column}_transmit_us")
        total = total + pl.col(f"{column}_notify_us") if waits else total
        keys = ("node_num", "num_token", "num_topk", "num_experts", "hidden_size")
        frame = frame.group_by(keys).agg(total.min().alias(f"{column}_avg_t_us")).sort(keys)
    tokens = frame["num_token"].to_numpy().astype(float)
    return Exchanges(
        nodes=frame["node_num"].to_numpy().astype(float),
        tokens=tokens,
        copy_bytes=tokens * frame["hidden_size"].to_numpy() * element,
        top_k=frame["num_topk"].to_numpy().astype(float),
        seconds=frame[f"{column}_avg_t_us"].to_numpy() * 1e-6,
    )
