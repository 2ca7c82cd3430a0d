"""Expert exchange on node counts that a fit did not see: the silicon database, and published rates.

Every node count is held out in turn. The normal kernels are scored on three kinds of rows: whole
calls; where those wait (`exchange_links`), the transfer alone; and what others published.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from dse.catalog import Catalog
from dse.cost.collectives._base import Exchange
from dse.cost.collectives.ep_dispatch import LOW_LATENCY_TOKENS
from dse.evidence.calibrate_collectives import NETWORK_GPU, trusted
from dse.evidence.collective_rows import (
    BACKENDS,
    EXCHANGES,
    LOW_LATENCY,
    NODE_GPUS,
    NORMAL,
    ExchangeKind,
    Exchanges,
    exchange_rows,
    exchange_tables,
    n_nodes,
)
from dse.evidence.exchange_links import LEAST_BUSY, busy, port_bytes, waiting
from dse.evidence.exchange_reports import MULTI_QP, reports
from dse.evidence.fit_exchange import exchange_seconds, fit_exchanges
from dse.evidence.unseen import State, Unseen
from dse.hardware.fabric import Fabric

MODES = {LOW_LATENCY: "low-latency", NORMAL: "normal"}


def unseen_nodes(gpu: str, fabric: Fabric) -> Iterator[Unseen]:
    """Every node count of the DeepEP sweeps of `gpu`, predicted by a fit to the others.

    A node count that the fit sets aside is predicted by the fit to all others.
    """
    for backend in BACKENDS:
        found = exchange_tables(backend, gpu)
        if not found or n_nodes(found[-1]) == 1:
            continue
        every = {kind: exchange_rows(found[-1], kind) for kind in EXCHANGES}
        for nodes in np.unique(every["ep_dispatch"].nodes):
            fitted = _without(backend, gpu, fabric, int(nodes))
            for kind in EXCHANGES:
                rows = every[kind].take(every[kind].nodes == nodes)
                row = _scored(f"deepep {MODES[backend]}", gpu, kind, rows, fitted[kind], fabric)
                idle = bool(waiting(kind, rows, fabric).any())
                yield row if backend == LOW_LATENCY else replace(row, state=_state(idle))


def unseen_transfers(gpu: str, fabric: Fabric) -> Iterator[Unseen]:
    """Of node counts where whole calls of the normal kernels wait: the transfers alone, those
    whose links are busy apart from those whose links are not.
    """
    found = exchange_tables(NORMAL, gpu)
    if not found:
        return
    for kind in EXCHANGES:
        whole = exchange_rows(found[-1], kind)
        transfers = exchange_rows(found[-1], kind, waits=False)
        for nodes in np.unique(whole.nodes[waiting(kind, whole, fabric)]):
            fitted = _without(NORMAL, gpu, fabric, int(nodes))
            here = transfers.take(
                (transfers.nodes == nodes) & (transfers.tokens > LOW_LATENCY_TOKENS)
            )
            idle = busy(kind, here, fabric) < LEAST_BUSY
            for some in (~idle, idle):
                if some.any():
                    state = _state(bool(idle[some].all()))
                    label = f"deepep normal, transfer alone, {state}"
                    row = _scored(label, gpu, kind, here.take(some), fitted[kind], fabric)
                    yield replace(row, state=state)


def unseen_reports(fabric: Fabric) -> Iterator[Unseen]:
    """Published rates of the normal kernels, each by the fit to the other node counts of
    `NETWORK_GPU`, whose fabric is `fabric`: no report enters a fit.
    """
    catalog = Catalog.load()
    if not exchange_tables(NORMAL, NETWORK_GPU):
        return
    for each in reports():
        there = catalog.fabric(catalog.gpu(each.gpu).fabric)
        fitted = _without(NORMAL, NETWORK_GPU, fabric, int(each.rows.nodes[0]))
        idle = bool(waiting(each.kind, each.rows, there).any())
        label = f"deepep normal, {each.source}"
        row = _scored(label, each.gpu, each.kind, each.rows, fitted[each.kind], there)
        yield replace(row, state=_state(idle, known=each.source == MULTI_QP))


def _state(idle: bool, *, known: bool = True) -> State:
    """Of rows whose links are `idle`, or of kernels `known` to be those of the database."""
    if idle:
        return "links idle"
    return "consistent" if known else "other kernels"


@cache
def _without(backend: str, gpu: str, fabric: Fabric, nodes: int) -> Mapping[ExchangeKind, Exchange]:
    """Constants of one backend fitted to all node counts but `nodes`."""
    table = exchange_tables(backend, gpu)[-1]
    usable = {kind: trusted(table, kind, fabric) for kind in EXCHANGES}
    train = {kind: rows.take(rows.nodes != nodes) for kind, rows in usable.items()}
    return fit_exchanges(train, fabric, deduplicates=backend == NORMAL)


def _scored(
    label: str, gpu: str, kind: ExchangeKind, rows: Exchanges, fitted: Exchange, fabric: Fabric
) -> Unseen:
    """`rows` of one node count beside what `fitted` gives them on `fabric`."""
    return Unseen(
        gpu=gpu, collective=kind, engine=label, held=f"{int(rows.nodes[0])} nodes",
        size=rows.copy_bytes, ranks=(rows.nodes * NODE_GPUS).astype(np.int64),
        measured_s=rows.seconds, predicted_s=exchange_seconds(kind, fitted, rows, fabric),
        tokens=rows.tokens, port_bytes=port_bytes(kind, rows, fabric),
        busy=busy(kind, rows, fabric),
    )  # fmt: skip
