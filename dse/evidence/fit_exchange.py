"""Fits DeepEP's dispatch and combine together: one kernel design, one network.

What a sweep cannot tell is held by weak ties: the two directions start alike inside a domain and
post messages alike, and a kernel moves about `LIKELY_EFFICIENCY` of its scale-up link. A few rows
that do tell outweigh them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from dse.cost.collectives._base import Exchange, Span
from dse.cost.collectives.ep_dispatch import backend_seconds
from dse.evidence.collective_rows import EXCHANGES, Array, ExchangeKind, Exchanges
from dse.evidence.exchange_links import exchange_op
from dse.hardware.fabric import Fabric

# Geometric mean of both directions on the NVLink 5 fabrics, where it is 0.50 to 0.72; neither
# direction is the better one on every fabric.
LIKELY_EFFICIENCY = 0.6
EFFICIENCY_TIE, START_TIE = 0.2, 0.15  # standard deviations of logarithms
NETWORK_TIE_S = 20e-6
NOISE = 0.05
# Base, network and fan-out or round (s), scale-up and scale-out efficiency of one direction.
START = (15e-6, 2e-6, 10e-6, 0.5, 0.9)
LOW, HIGH = (1e-6, 1e-9, 1e-9, 0.05, 0.05), (200e-6, 200e-6, 200e-6, 1.0, 1.0)


def exchange_seconds(kind: ExchangeKind, each: Exchange, rows: Exchanges, fabric: Fabric) -> Array:
    """Seconds that a backend gives `rows` of one direction."""
    seconds = np.empty_like(rows.seconds)
    for nodes in np.unique(rows.nodes):
        for top_k in np.unique(rows.top_k):
            some = (rows.nodes == nodes) & (rows.top_k == top_k)
            op = exchange_op(kind, rows.take(some), nodes, top_k)
            seconds[some] = backend_seconds(op, fabric, Span.of(op, fabric), each)
    return seconds


def fit_exchanges(
    rows: Mapping[ExchangeKind, Exchanges], fabric: Fabric, *, deduplicates: bool = False
) -> dict[ExchangeKind, Exchange]:
    """Constants of the low-latency backend, or of the normal one (deduplicating), by direction."""

    def guess(values: Any) -> dict[ExchangeKind, Exchange]:
        halves = np.exp(values).reshape(len(EXCHANGES), -1)
        return {kind: _exchange(halves[i], deduplicates) for i, kind in enumerate(EXCHANGES)}

    def residual(values: Any) -> Array:
        found = guess(values)
        errors = [
            np.log(exchange_seconds(kind, found[kind], rows[kind], fabric) / rows[kind].seconds)
            for kind in EXCHANGES
        ]
        wide = np.concatenate(errors) / NOISE
        robust = np.sign(wide) * np.sqrt(2.0 * (np.sqrt(1.0 + wide**2) - 1.0))
        return np.concatenate([robust, _ties(np.asarray(values))])

    bounds = (np.log(LOW * 2), np.log(HIGH * 2) + 1e-9)
    best = least_squares(residual, np.log(START * 2), bounds=bounds, max_nfev=500)
    return guess(best.x)


def _ties(values: Array) -> Array:
    dispatch, combine = values.reshape(len(EXCHANGES), -1)
    unlike = (dispatch - combine)[[0, 2]] / START_TIE
    network = np.exp([dispatch[1], combine[1]]) / NETWORK_TIE_S
    moved = np.array([dispatch[3], combine[3]]) - np.log(LIKELY_EFFICIENCY)
    return np.concatenate([unlike, network, moved / EFFICIENCY_TIE])


def _exchange(values: Array, deduplicates: bool) -> Exchange:
    base, network, more, inner, outer = map(float, values)
    return Exchange(
        base_s=base,
        network_s=network,
        fan_out_s=0.0 if deduplicates else more,
        round_s=more if deduplicates else 0.0,
        efficiency=inner,
        network_efficiency=outer,
        deduplicates=deduplicates,
    )
