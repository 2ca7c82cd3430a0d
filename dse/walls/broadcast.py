"""Walls over products of axes: every layout of each role and every load, without a row for any.

A wall reads facts of the pool that prefills, of the pool that decodes, and of the question, each on
an axis of its own: `(prefill layouts, decode layouts, loads)`. What does not depend on how many
replicas there are is asked of one replica a pool; throughput grows with the replicas of each pool,
so its ceilings are those of one, for the caller to multiply.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.walls.floors import (
    Columns,
    decoded_tokens_per_s,
    prefilled_tokens_per_s,
    prompt_s,
    single_step_s,
)
from dse.walls.judge import applicable
from dse.walls.kinds import Wall

Array = NDArray[np.float64]
Codes = NDArray[np.int8]

__all__ = ["ALIVE", "Ceilings", "split_walls", "verdicts"]

ALIVE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Output tokens/s of one replica at most: of a pool that decodes, `(decode layouts, loads)`,
    and the same within the TPOT bound, and of a pool that prefills, `(prefill layouts, loads)`,
    infinite where the roles are one. `tpot_s` and `ttft_s` are the floors of latency.
    """

    decode: Array
    decode_in_time: Array
    prefill: Array
    tpot_s: Array
    ttft_s: Array

    @classmethod
    def of(cls, c: Columns, *, slo_tpot_s: float | None, is_disaggregated: bool) -> "Ceilings":
        """The ceilings of columns on axes of their own."""
        decode = np.asarray(decoded_tokens_per_s(c), dtype=float)
        in_time = decode
        if slo_tpot_s is not None:
            in_time = np.asarray(decoded_tokens_per_s(c, slo_tpot_s=slo_tpot_s), dtype=float)
        prefill = prefilled_tokens_per_s(c) if is_disaggregated else np.inf
        return cls(
            decode=decode,
            decode_in_time=in_time,
            prefill=np.asarray(prefill, dtype=float),
            tpot_s=np.asarray(single_step_s(c) / c["tokens_per_step_max"], dtype=float),
            ttft_s=np.asarray(prompt_s(c), dtype=float),
        )


def split_walls(
    names: set[str], walls: Sequence[Wall] | None = None
) -> tuple[list[Wall], list[Wall]]:
    """The walls that apply to columns `names`: those of structure and lengths, then those of load.

    The first kind comes first in every order, so a kill by the second is a kill by it alone.
    """
    chosen = applicable(names, walls)
    fixed = [wall for wall in chosen if not wall.varies]
    return fixed, [wall for wall in chosen if wall.varies]


def verdicts(c: Columns, walls: Sequence[Wall], shape: tuple[int, ...]) -> Codes:
    """The index of the first of `walls` that kills, or `ALIVE`, on `shape`."""
    found = np.full(shape, ALIVE, dtype=np.int8)
    for code in reversed(range(len(walls))):
        holds = np.asarray(walls[code].demand(c)) <= np.asarray(walls[code].limit(c))
        found[np.broadcast_to(~holds, shape)] = code
    return found
