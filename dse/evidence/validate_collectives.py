"""How wrong collective prices are on what a fit did not see.

Ladders: every second message size is held out. Expert exchange: every node count in turn; an inner
count is interpolated, the least and the most are extrapolated. Without its one-node rows a sweep
takes nothing in-domain from another. The shipped constants are fitted to all rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dse.cost.collectives._coefficients import MEASURED_INTERVAL
from dse.cost.collectives.ep_dispatch import LOW_LATENCY_TOKENS
from dse.evidence.calibrate_collectives import NETWORK_GPU, trusted
from dse.evidence.collective_rows import (
    BACKENDS,
    EXCHANGES,
    LOW_LATENCY,
    NODE_GPUS,
    NORMAL,
    Array,
    Messages,
    crawling,
    engine_messages,
    exchange_rows,
    exchange_tables,
    library_messages,
    n_nodes,
)
from dse.evidence.fit_exchange import exchange_seconds, fit_exchanges
from dse.evidence.fit_ladder import fit_ladder, ladder_seconds
from dse.evidence.silicon import Table, tables
from dse.hardware.fabric import Fabric

SMALL_BYTES = 2**20
MODES = {LOW_LATENCY: "low-latency", NORMAL: "normal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Held-out rows of one collective: `engine` is the library or engine that ran it, `held` says
    what was held out. `size` is the message (B), `ranks` its ranks, `tokens` those of one rank in
    an expert exchange.
    """

    gpu: str
    collective: str
    engine: str
    held: str
    size: Array
    ranks: npt.NDArray[np.int64]
    measured_s: Array
    predicted_s: Array
    tokens: Array | None = None

    @property
    def error(self) -> Array:
        """Signed relative errors."""
        found: Array = self.predicted_s / self.measured_s - 1.0
        return found

    @property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Which rows lie in the stated 80% interval of a measured fabric."""
        low, high = MEASURED_INTERVAL
        ratio = self.measured_s / self.predicted_s
        found: npt.NDArray[np.bool_] = (ratio >= low) & (ratio <= high)
        return found

    def take(self, index: npt.NDArray[np.bool_]) -> "Unseen":
        """The rows of `index`."""
        return Unseen(
            gpu=self.gpu, collective=self.collective, engine=self.engine, held=self.held,
            size=self.size[index], ranks=self.ranks[index],
            measured_s=self.measured_s[index], predicted_s=self.predicted_s[index],
            tokens=None if self.tokens is None else self.tokens[index],
        )  # fmt: skip

    @property
    def small(self) -> "Unseen":
        """Messages up to `SMALL_BYTES` on at most eight ranks."""
        return self.take((self.size <= SMALL_BYTES) & (self.ranks <= 8))

    @property
    def priced(self) -> "Unseen":
        """The rows of an expert exchange that its kernels are priced for: low-latency up to
        `LOW_LATENCY_TOKENS` tokens, normal beyond.
        """
        assert self.tokens is not None
        few = self.tokens <= LOW_LATENCY_TOKENS
        return self.take(few if MODES[LOW_LATENCY] in self.engine else ~few)


def unseen(fabrics: Mapping[str, Fabric]) -> Iterator[Unseen]:
    """Held-out rows of all collectives of the GPUs of `fabrics` (GPU name to catalog fabric)."""
    for gpu, fabric in fabrics.items():
        yield from unseen_sizes(gpu, fabric)
        if gpu == NETWORK_GPU:  # what other GPUs have across nodes repeats its rows
            yield from unseen_nodes(gpu, fabric)


def unseen_sizes(gpu: str, fabric: Fabric) -> Iterator[Unseen]:
    """Every second message size, predicted by a fit to the others."""
    rate = fabric.scale_up.bytes_per_s
    for collective, engine, messages in _sweeps(gpu):
        kept = messages.take(~crawling(messages, rate))
        hidden = np.isin(kept.size, np.unique(kept.size)[1::2])
        ladder = fit_ladder(kept.take(~hidden), rate, custom=engine != "nccl")
        held = kept.take(hidden)
        yield Unseen(
            gpu=gpu, collective=collective, engine=engine, held="sizes",
            size=held.size, ranks=held.ranks, measured_s=held.seconds,
            predicted_s=ladder_seconds(ladder, held, rate),
        )  # fmt: skip


def n_crawling(fabrics: Mapping[str, Fabric]) -> int:
    """Rows set aside: rank counts whose host had no peer access."""
    return sum(
        int(crawling(messages, fabric.scale_up.bytes_per_s).sum())
        for gpu, fabric in fabrics.items()
        for _, _, messages in _sweeps(gpu)
    )


def _sweeps(gpu: str) -> Iterator[tuple[str, str, Messages]]:
    for op, messages in sorted(library_messages(gpu).items()):
        yield op, "nccl", messages
    for table in tables("custom_allreduce"):
        if table.gpu == gpu:
            yield "all_reduce", table.engine, engine_messages(table)


def unseen_nodes(gpu: str, fabric: Fabric) -> Iterator[Unseen]:
    """Every node count of the DeepEP sweeps of `gpu`, predicted by a fit to the others.

    A node count that the fit sets aside is predicted by the fit to all others.
    """
    for backend in BACKENDS:
        found: Sequence[Table] = exchange_tables(backend, gpu)
        if not found or n_nodes(found[-1]) == 1:
            continue
        every = {kind: exchange_rows(found[-1], kind) for kind in EXCHANGES}
        usable = {kind: trusted(found[-1], kind) for kind in EXCHANGES}
        for nodes in np.unique(every["ep_dispatch"].nodes):
            train = {kind: rows.take(rows.nodes != nodes) for kind, rows in usable.items()}
            fitted = fit_exchanges(train, fabric, deduplicates=backend == NORMAL)
            for kind in EXCHANGES:
                rows = every[kind].take(every[kind].nodes == nodes)
                yield Unseen(
                    gpu=gpu, collective=kind, engine=f"deepep {MODES[backend]}",
                    held=f"{int(nodes)} nodes", size=rows.copy_bytes,
                    ranks=(rows.nodes * NODE_GPUS).astype(np.int64),
                    measured_s=rows.seconds,
                    predicted_s=exchange_seconds(kind, fitted[kind], rows, fabric),
                    tokens=rows.tokens,
                )  # fmt: skip
