"""Expert dispatch: each token's activations go to the ranks of its experts (DeepEP)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dse.cost.collectives._base import Algorithm, Constants, Exchange, Span, reach, through_port
from dse.cost.destinations import distinct
from dse.hardware.fabric import Fabric
from dse.model.ops import Collective, Num

# Tokens per rank that engines size the low-latency buffers for (DeepEP's example 128, vLLM 256).
LOW_LATENCY_TOKENS = 256
# The two links work side by side; their times join as a norm between the sum (1) and the slower
# (infinity). Dispatch hands chunks on as they come; combine sums what one link brings before the
# other takes it, and keeps both less busy. (DeepEP normal kernels on two H100 nodes: 146 ns a token
# inside and 143 at the wire of a dispatch took 165, 254 and 286 of a combine took 375.) The norms
# were chosen among 2, 3, 4 and 6 on that sweep.
LINK_NORM = {"ep_dispatch": 6.0, "ep_combine": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class EPDispatch(Algorithm):
    """`n_bytes` is what one rank's tokens weigh once; each goes to `top_k` experts."""

    kind: Literal["ep_dispatch"] = "ep_dispatch"

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        return exchanged(op, fabric, constants)

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        return copies(op, span, deduplicates=True)


def exchanged(op: Collective, fabric: Fabric, constants: Constants) -> Num:
    """Seconds under the low-latency kernels for as many tokens as their buffers hold, beyond that
    under the normal ones.
    """
    span = Span.of(op, fabric)
    low_latency, normal = (
        backend_seconds(op, fabric, span, each) for each in constants.exchanges[op.kind]
    )
    return np.where(np.less_equal(op.tokens, LOW_LATENCY_TOKENS), low_latency, normal)


def backend_seconds(op: Collective, fabric: Fabric, span: Span, backend: Exchange) -> Num:
    """Seconds of `op` under one backend."""
    up, out = copies(op, span, deduplicates=backend.deduplicates)
    if backend.deduplicates:
        up = up * span.domains  # what arrives from other domains is handed on inside this one
    inner = through_port(fabric, up, out) / (
        backend.efficiency * reach(fabric.scale_up, span.inner)
    )
    outer = out / (backend.network_efficiency * fabric.scale_out.bytes_per_s)
    start = backend.base_s
    if span.domains > 1:
        rounds = float(np.log2(span.domains))
        start += backend.network_s + backend.fan_out_s * span.remote + backend.round_s * rounds
    link = fabric.scale_out if span.domains > 1 else fabric.scale_up
    if link.exchange_latency_s is not None:
        start = link.exchange_latency_s  # a cluster's measured constant wins
    norm = LINK_NORM[op.kind]
    return start + (inner**norm + outer**norm) ** (1.0 / norm)


def copies(op: Collective, span: Span, *, deduplicates: bool) -> tuple[Num, Num]:
    """Bytes a rank sends inside its domain and beyond it, under uniform routing.

    With deduplication one copy per distinct rank, and a token crosses once to each distinct domain.
    """
    weight, k, n = np.asarray(op.n_bytes, dtype=float), float(op.top_k), float(span.n)
    if not deduplicates:
        return weight * k * (span.inner - 1) / n, weight * k * (n - span.inner) / n
    ranks = distinct(span.n, op.top_k, op.groups, op.top_groups)
    domains = distinct(span.domains, op.top_k, op.groups, op.top_groups)
    up = weight * ranks * (span.inner - 1) / n
    return up, weight * domains * (span.domains - 1) / span.domains
