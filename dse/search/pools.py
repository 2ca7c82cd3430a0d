"""What pools are likely to do together, on axes of their own: guesses for more deployments than can
be rows.

A replica that decodes keeps `x` requests in flight and takes `x / per_s(x)` seconds a step; one
that prefills takes so many seconds a token. Each is worked out once a layout; of a deployment only
the numbers of replicas are left, and the slower of its pools sets the pace (Little 1961). Means of
the lengths stand for the requests. Nothing here bounds anything (see `likely`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.search.envelope import Array
from dse.search.paces import prompt_seconds
from dse.search.trade import Rates
from dse.sim.spec import PoolSpec

Floats = NDArray[np.float32]
# Knots of a step's seconds by the rate, downwards from the highest: so many an octave.
KNOTS, _OCTAVE = 96, 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean prompt and answer in tokens, and the contexts between which requests decode."""

    isl: float
    osl: float
    lowest: float
    highest: float

    def steps(self, q_tokens: int) -> float:
        """Decode steps of a request."""
        return max((self.osl - 1.0) / q_tokens, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilling:
    """Replicas that prefill, `(layouts, lengths)`: requests/s of one, and the seconds until a
    prompt that waits for no other is computed. Layouts without room are NaN.
    """

    req_per_s: Array
    alone_s: Array

    @classmethod
    def of(cls, pools: Sequence[PoolSpec | None], lengths: Sequence[Lengths]) -> "Prefilling":
        """What each pool takes for prompts of each length."""
        found = np.full((2, len(pools), len(lengths)), np.nan)
        for i, pool in enumerate(pools):
            for j, each in enumerate(lengths):
                if pool is not None:
                    alone_s, _, _, stage_s = prompt_seconds(pool, max(1, round(each.isl)))
                    found[:, i, j] = 1.0 / stage_s, pool.arrival_s + alone_s
        return cls(req_per_s=found[0], alone_s=found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Replicas that decode, `(prefill layouts, decode layouts, loads)`: requests/s of one and the
    seconds of its steps with the loop full; `slower_s` (decode layouts, loads, knots) are those at
    lower rates, by octaves below `most_per_s`.
    """

    req_per_s: Floats
    tpot_s: Floats
    most_per_s: Floats
    slower_s: Floats

    @classmethod
    def of(
        cls,
        pools: Sequence[PoolSpec | None],
        prefilling: Prefilling,
        lengths: Sequence[Lengths],
        loads: tuple[NDArray[np.int64], Array],
        *,
        is_shared: bool,
    ) -> "Decoding":
        """Each pool at each load: an index into `lengths`, and requests of one replica.
        `is_shared`: the same replicas prefill, so layouts are those of `prefilling`, one to one.
        """
        of_length, batch = loads
        n_first = 1 if is_shared else len(prefilling.req_per_s)
        shape = (n_first, len(pools), len(batch))
        rate, tpot = np.full(shape, np.nan), np.full(shape, np.nan)
        most = np.full(shape[1:], np.nan)
        slower = np.full((*shape[1:], KNOTS), np.nan)
        for d, pool in enumerate(pools):
            if pool is None:
                continue
            for j, each in enumerate(lengths):
                own = np.flatnonzero(of_length == j)
                rates = Rates.of(pool, (each.lowest, each.highest))
                before = prefilling.alone_s[[d] if is_shared else slice(None), j][:, None]
                added = 1.0 / prefilling.req_per_s[d, j] if is_shared else 0.0
                found = _one(rates, each, batch[own], before, added)
                rate[:, d, own], tpot[:, d, own], most[d, own], slower[d, own] = found
        return cls(
            req_per_s=rate.astype(np.float32),
            tpot_s=tpot.astype(np.float32),
            most_per_s=most.astype(np.float32),
            slower_s=slower.astype(np.float32),
        )

    def tpot_at(self, d: NDArray[np.int64], load: NDArray[np.int64], per_s: Floats) -> Floats:
        """Seconds of a token where a replica of layout `d` serves `per_s` requests/s."""
        with np.errstate(divide="ignore", invalid="ignore"):
            octaves = -_OCTAVE * np.log2(per_s / self.most_per_s[d, load])
        octaves = np.clip(np.nan_to_num(octaves), 0.0, KNOTS - 1.001)
        low = octaves.astype(np.int64)
        share = (octaves - low).astype(np.float32)
        found: Floats = self.slower_s[d, load, low] * (1.0 - share)
        found += self.slower_s[d, load, low + 1] * share
        return found


def _one(
    rates: Rates, lengths: Lengths, batch: Array, before: Array, added_s: float
) -> tuple[Array, Array, Array, Array]:
    """Requests/s and seconds of a token by `before` and batch; the most requests/s, and seconds of
    a token at rates below, by batch.
    """
    # Which stage of a pipeline is the slowest matters to a bound, and takes most of its time.
    q, hull = rates.pool.limits.q_tokens, rates.in_turn
    steps = lengths.steps(q)

    def seconds(x: Array) -> Array:
        """From first token to last, with `x` in flight."""
        found: Array = x * (steps / np.interp(x, hull.x, hull.y) + added_s)
        return found

    running = np.minimum(batch, hull.x[-1])
    whole = seconds(running)
    # Those whose prompts are computed are in flight and do not decode; others may take their seats.
    x = np.minimum(running, batch * whole / (whole + before * (added_s == 0.0)))
    x = np.broadcast_to(x, np.broadcast_shapes(x.shape, before.shape))
    decoding = seconds(x)
    below = running[:, None] * 2.0 ** (-np.arange(2 * KNOTS) / _OCTAVE)[None, :]
    below = np.maximum(below, 1e-3)
    spent = seconds(below)
    octaves = -_OCTAVE * np.log2((below / spent) / (running / whole)[:, None])
    slower = np.stack(
        [np.interp(np.arange(KNOTS), o, s) for o, s in zip(octaves, spent, strict=True)]
    )
    return x / decoding, decoding / steps / q, running / whole, slower / steps / q
