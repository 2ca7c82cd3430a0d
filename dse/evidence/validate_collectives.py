"""How wrong collective prices are on what a fit did not see.

Ladders: every second message size is held out. Expert exchange: every node count in turn
(`validate_exchange`); an inner count is interpolated, the least and the most are extrapolated.
Without its one-node rows a sweep takes nothing in-domain from another. The shipped constants are
fitted to all rows.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from dse.evidence.calibrate_collectives import NETWORK_GPU
from dse.evidence.collective_rows import Messages, crawling, engine_messages, library_messages
from dse.evidence.fit_ladder import fit_ladder, ladder_seconds
from dse.evidence.silicon import tables
from dse.evidence.unseen import Unseen
from dse.evidence.validate_exchange import unseen_nodes, unseen_reports, unseen_transfers
from dse.hardware.fabric import Fabric


def unseen(fabrics: Mapping[str, Fabric]) -> Iterator[Unseen]:
    """Held-out rows of all collectives of the GPUs of `fabrics` (GPU name to catalog fabric)."""
    for gpu, fabric in fabrics.items():
        yield from unseen_sizes(gpu, fabric)
        if gpu == NETWORK_GPU:  # what other GPUs have across nodes repeats its rows
            yield from unseen_nodes(gpu, fabric)
            yield from unseen_transfers(gpu, fabric)
            yield from unseen_reports(fabric)


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
