"""Published rates of DeepEP's normal kernels (V1), as rows: 4096 tokens a rank, width 7168, top-8.

Its benchmark divides the bytes of all copies, those that stay at home too, by the time of the whole
call (deepseek-ai/DeepEP tests/test_internode.py; #51 there): a port moves `1 − 1/nodes` of what it
prints.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dse.cost.destinations import distinct
from dse.evidence.collective_rows import NODE_GPUS, TOP_GROUPS, ExchangeKind, Exchanges

TOKENS, WIDTH, TOP_K = 4096, 7168, 8
# Bytes an element: FP8 (its scales, 4 bytes for 128, are in the printed rate alone) or 16-bit.
ELEMENT = {"ep_dispatch": 1.0, "ep_combine": 2.0}
PRINTED = {"ep_dispatch": 1.0 + 4.0 / 128.0, "ep_combine": 2.0}
FIRST, MULTI_QP, USERS = "DeepEP 2025-03", "DeepEP 2025-04, several QPs", "users' issues"
# (report, GPU, nodes, FP8 dispatch GB/s, 16-bit combine GB/s). On one node of NVLink, else of RDMA.
# README.md of deepseek-ai/DeepEP at e130cc6 and docs/legacy.md at dd758ca (its #130: several queue
# pairs, which change nothing on two nodes); issues 155, 493 (two) and 148 there.
_RATES: tuple[tuple[str, str, int, float | None, float | None], ...] = (
    (FIRST, "H800", 4, 44.0, 47.0),
    (FIRST, "H800", 8, 46.0, 45.0),
    (MULTI_QP, "H800", 1, 153.0, 158.0),
    (MULTI_QP, "H800", 2, 43.0, 43.0),
    (MULTI_QP, "H800", 4, 58.0, 57.0),
    (MULTI_QP, "H800", 8, 51.0, 50.0),
    (USERS, "H100-SXM", 2, None, 25.22),
    (USERS, "H200-SXM", 2, 38.19, 44.37),
    (USERS, "H200-SXM", 4, 13.15, 12.53),
    (USERS, "H20-96GB", 2, None, 62.15),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One published rate of `gpu`; `rows` holds its one row."""

    source: str
    gpu: str
    kind: ExchangeKind
    rows: Exchanges


def reports() -> Iterator[Report]:
    """Every published rate, as the seconds that it stands for."""
    for source, gpu, nodes, dispatch, combine in _RATES:
        kinds: tuple[ExchangeKind, ExchangeKind] = ("ep_dispatch", "ep_combine")
        for kind, rate in zip(kinds, (dispatch, combine), strict=True):
            if rate is not None:
                yield Report(source=source, gpu=gpu, kind=kind, rows=_row(kind, nodes, rate * 1e9))


def _row(kind: ExchangeKind, nodes: int, bytes_per_s: float) -> Exchanges:
    parts = NODE_GPUS if nodes == 1 else nodes
    copies = distinct(parts, TOP_K, nodes, TOP_GROUPS)
    elements = float(TOKENS * WIDTH)
    return Exchanges(
        nodes=np.array([float(nodes)]),
        tokens=np.array([float(TOKENS)]),
        copy_bytes=np.array([elements * ELEMENT[kind]]),
        top_k=np.array([float(TOP_K)]),
        seconds=np.array([copies * elements * PRINTED[kind] / bytes_per_s]),
    )
