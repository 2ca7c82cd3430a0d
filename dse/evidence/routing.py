"""How many token-expert pairs a MoE table row puts on the timed rank, and on how many experts.

The silicon database's MoE rows name their routing: `balanced`, or a power law of exponent alpha
over experts, scaled to `tokens · top_k` pairs; the heaviest expert-parallel rank is timed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
DRAWS = 6  # permutations of experts over ranks that the expected heaviest rank averages over


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoad:
    """Per row: `rows` (token, expert) pairs on the timed rank and `touched` experts of it."""

    rows: Array
    touched: Array


def expert_load(
    *, tokens: Array, n_experts: Array, top_k: Array, ep: Array, distribution: Sequence[str]
) -> ExpertLoad:
    """The load of the timed rank for every row of a MoE table."""
    keys = zip(tokens, n_experts, top_k, ep, distribution, strict=True)
    pairs = [_load(int(t), int(e), int(k), int(r), str(d)) for t, e, k, r, d in keys]
    rows, touched = np.asarray(pairs, dtype=float).T
    return ExpertLoad(rows=rows, touched=touched)


@cache
def _load(
    tokens: int, n_experts: int, top_k: int, ep: int, distribution: str
) -> tuple[float, float]:
    if distribution.startswith("power_law_"):
        alpha = float(distribution.removeprefix("power_law_"))
        return _heaviest(_power_law(tokens, n_experts, top_k, alpha), ep)
    return _balanced(tokens, n_experts, top_k, ep)


def _balanced(tokens: int, n_experts: int, top_k: int, ep: int) -> tuple[float, float]:
    """Round robin: token i goes to experts i, i + stride, i + 2·stride, …; rank 0 is timed."""
    local = max(n_experts // ep, 1)
    stride = -(-n_experts // top_k)
    first = np.arange(tokens, dtype=float)
    if tokens < stride:
        first = first * stride / tokens
    chosen = (first[:, None] + np.arange(top_k) * stride).astype(int) % n_experts
    mine = chosen[chosen < local]
    return max(float(len(mine)), 1e-3), max(float(len(np.unique(mine))), 1e-3)


def _power_law(tokens: int, n_experts: int, top_k: int, alpha: float) -> Array:
    """Tokens of each expert at the quantiles of the power law, whole and at most `tokens` each."""
    pairs = tokens * top_k
    low, high = (1.0, 0.8 * tokens) if pairs > n_experts else (0.01, 2.0)
    quantile = (np.arange(n_experts) + 0.5) / n_experts
    power = 1.0 - alpha
    load = ((high**power - low**power) * quantile + low**power) ** (1.0 / power)
    for _ in range(3):
        load = np.minimum(load * pairs / load.sum(), tokens)
    whole = np.floor(load)
    short = round(float(pairs - whole.sum()))
    whole[np.argsort(whole - load)[: max(short, 0)]] += 1.0
    capped: Array = np.minimum(whole, tokens)
    return capped


def _heaviest(load: Array, ep: int) -> tuple[float, float]:
    if ep <= 1:
        return max(float(load.sum()), 1e-3), max(float((load > 0).sum()), 1e-3)
    rng = np.random.default_rng(len(load) * 1000 + ep)
    found = []
    for _ in range(DRAWS):
        ranks = rng.permutation(load)[: len(load) // ep * ep].reshape(ep, -1)
        heaviest = ranks[np.argmax(ranks.sum(axis=1))]
        found.append((heaviest.sum(), (heaviest > 0).sum()))
    rows, touched = np.mean(found, axis=0)
    return max(float(rows), 1e-3), max(float(touched), 1e-3)
