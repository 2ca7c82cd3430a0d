"""Fits the competing protocols of a collective to measured messages.

On the logarithm of time, robustly, from several starts, with the exact slopes of the fastest line.
The bounds within which an engine runs its own kernels are a few candidates, each fitted; one more
bound must earn `WORTH` of the loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from dse.cost.collectives._base import LEAST_SHARE, PAIR, Protocol, Volume, fastest
from dse.evidence.collective_rows import Array, Messages

N_LINES = 3
WORTH = 0.1
MOST_BYTES = tuple(2.0**exponent for exponent in range(17, 23))
HOST_RANKS = 8  # tables of more ranks than a host holds tell where its own kernels end
FIELDS = ("base_s", "per_rank_s", "efficiency", "efficiency_step")
# Starts, as multiples of the fastest row (times) and as they are (shares).
STARTS = (
    ((1, 0.05, 0.5, 0.0), (3, 0.3, 0.5, 0.0), (6, 1.0, 0.75, 0.05)),
    ((1, 0.2, 0.1, 0.0), (2, 0.2, 0.3, 0.0), (4, 0.5, 0.7, 0.0)),
    ((1, 0.1, 0.3, 0.0), (1.5, 0.1, 0.5, 0.0), (10, 1.0, 0.9, 0.0)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`ranks` of each line and `n_bytes` of the first; None is no bound."""

    ranks: tuple[int | None, ...] = (None,) * N_LINES
    n_bytes: float | None = None

    @property
    def n_set(self) -> int:
        """How many bounds are set."""
        return sum(each is not None for each in (*self.ranks, self.n_bytes))


def fit_ladder(messages: Messages, bytes_per_s: float, *, custom: bool) -> tuple[Protocol, ...]:
    """Protocols of one collective; where `custom`, the first is one-shot and may be bounded."""
    volumes: tuple[Volume, ...] = ("one_shot" if custom else "ring", "ring", "ring")

    def fitted(bounds: Bounds) -> tuple[float, Bounds, tuple[Protocol, ...]]:
        cost, ladder = _fit(messages, bytes_per_s, volumes, bounds)
        return cost * (1.0 + WORTH * bounds.n_set), bounds, ladder

    found = [fitted(bounds) for bounds in _hosts(messages, custom=custom)]
    if custom:
        ranks = min(found, key=_cost)[1].ranks
        found += [fitted(Bounds(ranks=ranks, n_bytes=most)) for most in MOST_BYTES]
    return min(found, key=_cost)[2]


def _cost(found: tuple[float, Bounds, tuple[Protocol, ...]]) -> float:
    return found[0]


def ladder_seconds(ladder: Sequence[Protocol], messages: Messages, bytes_per_s: float) -> Array:
    """Seconds that `ladder` gives `messages`."""
    seconds = np.empty_like(messages.seconds)
    ring = messages.ring
    for ranks in np.unique(messages.ranks):
        rows = messages.ranks == ranks
        one_shot = (ranks - 1.0) * messages.size[rows]
        seconds[rows] = fastest(ladder, int(ranks), ring[rows], one_shot, bytes_per_s)
    return seconds


def _hosts(messages: Messages, *, custom: bool) -> Iterator[Bounds]:
    """Where the engine's own kernels may end: anywhere in a table of more ranks than a host has."""
    counts = [int(ranks) for ranks in np.unique(messages.ranks)]
    ends = [None, *counts[:-1]] if custom and max(counts) > HOST_RANKS else [None]
    for first in ends:
        for second in ends:
            if second is None or (first is not None and second >= first):
                yield Bounds(ranks=(first, second, None))


def _fit(
    messages: Messages, bytes_per_s: float, volumes: Sequence[Volume], bounds: Bounds
) -> tuple[float, tuple[Protocol, ...]]:
    slow, fast = messages.seconds.min(), messages.seconds.max()
    scale = np.tile([slow, slow, 1.0, 1.0], N_LINES)
    low = np.tile([0.1 * slow, 0.0, 0.01, -0.3], N_LINES)
    high = np.tile([max(fast, 1.01 * slow), 20 * slow, 1.0, 0.3], N_LINES)
    lines = _Lines(messages, bytes_per_s, volumes, bounds)
    found = [
        least_squares(
            lambda values: lines.residual(values)[0],
            np.clip(np.ravel(start) * scale, low, high),
            jac=lambda values: lines.residual(values)[1],
            bounds=(low, high), loss="soft_l1", f_scale=0.05, x_scale=scale, max_nfev=200,
        )
        for start in STARTS
    ]  # fmt: skip
    best = min(found, key=lambda each: each.cost)
    return float(best.cost), _unpack(best.x, volumes, bounds)


class _Lines:
    """Residuals and slopes of a ladder's parameters on the rows that it is fitted to."""

    def __init__(
        self, messages: Messages, bytes_per_s: float, volumes: Sequence[Volume], bounds: Bounds
    ) -> None:
        ranks = messages.ranks.astype(float)
        one_shot = (ranks - 1.0) * messages.size
        self.rate = bytes_per_s
        self.beyond = ranks - PAIR
        self.doublings = np.log2(ranks / PAIR)
        self.moved = np.array([one_shot if v == "one_shot" else messages.ring for v in volumes])
        self.barred = np.array([ranks > (most or np.inf) for most in bounds.ranks])
        self.barred[0] |= (ranks > PAIR) & (self.moved[0] > (bounds.n_bytes or np.inf))
        self.log_seconds = np.log(messages.seconds)

    def residual(self, values: Array) -> tuple[Array, Array]:
        """Errors in the logarithm of time (n) and their slopes (n × parameters)."""
        base, per_rank, efficiency, step = values.reshape(N_LINES, 4).T[:, :, None]
        raw = efficiency + step * self.doublings
        share = np.clip(raw, LEAST_SHARE, 1.0)
        seconds = base + per_rank * self.beyond + self.moved / (self.rate * share)
        line = np.where(self.barred, np.inf, seconds).argmin(axis=0)
        rows: npt.NDArray[np.int64] = np.arange(len(line))
        took = seconds[line, rows]
        free = (raw > LEAST_SHARE) & (raw < 1.0)
        bend = np.where(free, -self.moved / (self.rate * share**2), 0.0)[line, rows] / took
        slopes = np.zeros((len(line), N_LINES, 4))
        slopes[rows, line] = np.stack(
            [1.0 / took, self.beyond / took, bend, bend * self.doublings], axis=1
        )
        return np.log(took) - self.log_seconds, slopes.reshape(len(line), -1)


def _unpack(values: Any, volumes: Sequence[Volume], bounds: Bounds) -> tuple[Protocol, ...]:
    return tuple(
        Protocol(
            **dict(zip(FIELDS, map(float, line), strict=True)),
            volume=volumes[i],
            most_ranks=bounds.ranks[i],
            most_bytes=bounds.n_bytes if i == 0 else None,
        )
        for i, line in enumerate(np.reshape(values, (N_LINES, 4)))
    )
