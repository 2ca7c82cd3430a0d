"""Which measured exchanges move bytes and which wait: how long a link is busy of the time taken.

Bytes over the link alone bound a large exchange. A sweep across nodes whose large rows leave every
link idle for over half the time waits for something that no property of the kernels explains.
"""

import numpy as np
import numpy.typing as npt

from dse.cost.collectives._base import Span
from dse.cost.collectives.ep_dispatch import copies
from dse.evidence.collective_rows import NODE_GPUS, TOP_GROUPS, Array, ExchangeKind, Exchanges
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective

LEAST_BUSY = 0.5
LARGE_TOKENS = 4096  # a start of 0.2 ms is under a tenth of what so many take across nodes


def exchange_op(kind: ExchangeKind, rows: Exchanges, nodes: float, top_k: float) -> Collective:
    """The collective of all `rows`, of one node count and `top_k`, as DeepEP's benchmarks route."""
    return Collective(
        kind=kind, n_bytes=rows.copy_bytes, n_ranks=int(NODE_GPUS * nodes), top_k=int(top_k),
        groups=int(nodes), top_groups=TOP_GROUPS,
    )  # fmt: skip


def port_bytes(kind: ExchangeKind, rows: Exchanges, fabric: Fabric) -> Array:
    """Bytes that leave each rank's network port."""
    return _moved(kind, rows, fabric)[1]


def busy(kind: ExchangeKind, rows: Exchanges, fabric: Fabric) -> Array:
    """Share of the time for which the busier of the two links moves bytes at its full rate."""
    up, out = _moved(kind, rows, fabric)
    slower = np.maximum(up / fabric.scale_up.bytes_per_s, out / fabric.scale_out.bytes_per_s)
    share: Array = slower / rows.seconds
    return share


def waiting(kind: ExchangeKind, rows: Exchanges, fabric: Fabric) -> npt.NDArray[np.bool_]:
    """Rows of node counts, beyond one, whose large rows are busy for less than `LEAST_BUSY`."""
    share, idle = busy(kind, rows, fabric), np.zeros(len(rows.nodes), dtype=bool)
    for nodes in np.unique(rows.nodes[rows.nodes > 1]):
        here = rows.nodes == nodes
        large = here & (rows.tokens >= LARGE_TOKENS)
        if large.any() and np.median(share[large]) < LEAST_BUSY:
            idle |= here
    return idle


def _moved(kind: ExchangeKind, rows: Exchanges, fabric: Fabric) -> tuple[Array, Array]:
    """Bytes of each rank on its scale-up link, handed-on ones too, and on its port."""
    up, out = np.empty_like(rows.seconds), np.empty_like(rows.seconds)
    for nodes in np.unique(rows.nodes):
        for top_k in np.unique(rows.top_k):
            some = (rows.nodes == nodes) & (rows.top_k == top_k)
            op = exchange_op(kind, rows.take(some), nodes, top_k)
            inside, beyond = copies(op, Span.of(op, fabric), deduplicates=True)
            up[some], out[some] = inside * nodes, beyond
    return up, out
