"""Judge whole products of axes without forming rows: structures × contexts × requests in flight.

Facts are columns of shape (structures, 1, 1), lengths (1, contexts, 1) and loads (1, 1, loads), so
each formula runs on the smallest block that its inputs span. `brute_force` looks at every point;
`prune` asks the walls that ignore load once for all loads, and finds where the others begin to
kill by bisection, since their margin only grows with load.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.base.errors import DseError
from dse.serving.slo import SLO
from dse.walls.facts import Facts
from dse.walls.floors import Columns
from dse.walls.judge import applicable, standard_walls
from dse.walls.kinds import Wall

Array = NDArray[np.float64]
Codes = NDArray[np.int8]
SURVIVOR = -1
# Points that are judged at once: arrays of half a MiB still fit the caches, and each call of numpy
# outweighs what Python spends around it, so that threads do not wait for one another.
BLOCK_POINTS = 2**16
# Pairs of structure and context that `prune` holds at once.
BLOCK_PAIRS = 2**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The numeric axes: contexts as pairs of tokens, requests in flight per replica (rising), and
    what a study asks of all points.
    """

    isl_tokens: Sequence[int]
    osl_tokens: Sequence[int]
    batch: Sequence[int]
    slo: SLO
    requests_per_concurrency: float = 10.0
    low: float = 1.0
    high: float = 1.0
    shared_tokens: float = 0.0

    def __post_init__(self) -> None:
        if list(self.batch) != sorted(set(self.batch)):
            raise DseError("the batches of a load must rise")

    @property
    def shape(self) -> tuple[int, int]:
        """Contexts and batches."""
        return len(self.isl_tokens), len(self.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """How many points no wall kills, how many each kills first, and the cut of each pair: loads
    `[0, cut)` of (structure, context) survive.
    """

    n_points: int
    killed: dict[str, int]
    cuts: NDArray[np.int32] = field(repr=False)

    @property
    def n_survivors(self) -> int:
        """Points that no wall kills."""
        return int(self.cuts.sum(dtype=np.int64))


class FactorColumns(dict[str, Any]):
    """`c["x"]` of one block: facts by structure, lengths by context, load as given."""

    def __init__(self, matrix: Array, places: dict[str, int], load: Load) -> None:
        super().__init__(_lengths(load))
        self._matrix, self._places = matrix, places

    def __missing__(self, name: str) -> Any:
        self[name] = self._matrix[:, self._places[name], None, None]
        return self[name]

    def with_batch(self, load: Load, batch: Array) -> "FactorColumns":
        """The same block at these requests in flight per replica."""
        concurrency = batch * self["n_replicas"]
        self["concurrency"] = self["in_flight"] = concurrency
        self["n_requests"] = load.requests_per_concurrency * concurrency
        return self


def matrix_of(facts: Sequence[Facts]) -> tuple[Array, dict[str, int]]:
    """Facts as one matrix, a row a structure, with the place of each column."""
    names = list(facts[0])
    rows = np.array([[each[name] for name in names] for each in facts])
    return rows, {name: place for place, name in enumerate(names)}


def brute_force(
    matrix: Array, places: dict[str, int], load: Load, *, threads: int = 1
) -> Iterator[tuple[slice, Codes]]:
    """Yield for blocks of structures the code of the wall that kills each point first, −1 where
    none does: an array (structures, contexts, batches). Codes are places in `walls_of(load)`.
    """
    walls = walls_of(load)
    fixed = tuple(wall for wall in walls if not wall.varies)
    height = max(1, BLOCK_POINTS // load.shape[0])
    batches = np.array(load.batch, dtype=float)[None, None, :]
    width = max(1, BLOCK_POINTS // (height * load.shape[0]))

    def work(rows: slice) -> tuple[slice, Codes]:
        part = matrix[rows]
        c = FactorColumns(part, places, load)
        shape = (len(part), *load.shape)
        found = np.empty(shape, dtype=np.int8)
        always = _codes(fixed, c.with_batch(load, batches[:, :, :1]))
        for start in range(0, shape[2], width):
            c.with_batch(load, batches[:, :, start : start + width])
            found[:, :, start : start + width] = _codes(walls, c, always, len(fixed))
        return rows, found

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, _slices(len(matrix), height))


def prune(matrix: Array, places: dict[str, int], load: Load, *, threads: int = 1) -> Survivors:
    """The same verdicts for every point, without visiting them all; exact wherever a wall's margin
    falls with load, which `brute_force` shows on samples.
    """
    walls = walls_of(load)
    fixed = tuple(wall for wall in walls if not wall.varies)
    varying = tuple(wall for wall in walls if wall.varies)
    height = max(1, BLOCK_PAIRS // load.shape[0])
    cuts = np.zeros((len(matrix), load.shape[0]), dtype=np.int32)
    batches = np.array(load.batch, dtype=float)

    def work(rows: slice) -> dict[str, int]:
        part = matrix[rows]
        c = FactorColumns(part, places, load).with_batch(load, batches[None, None, :1])
        shape = (len(part), load.shape[0])
        codes = np.broadcast_to(_codes(fixed, c), (*shape, 1))[:, :, 0]
        killed = {
            wall.kind: int((codes == code).sum()) * len(batches) for code, wall in enumerate(fixed)
        }
        found = np.where(codes == SURVIVOR, len(batches), 0).astype(np.int32)
        alive = np.flatnonzero((codes == SURVIVOR).any(axis=1))
        for wall in varying if len(alive) else ():
            first = _first_kill(wall, part[alive], places, load, batches)
            cut = np.minimum(found[alive], first)
            killed[wall.kind] = int((found[alive] - cut).sum())
            found[alive] = cut
        cuts[rows] = found
        return killed

    total: dict[str, int] = {}
    with ThreadPoolExecutor(threads) as pool:
        for killed in pool.map(work, _slices(len(matrix), height)):
            for kind, count in killed.items():
                total[kind] = total.get(kind, 0) + count
    n_points = len(matrix) * load.shape[0] * load.shape[1]
    return Survivors(n_points=n_points, killed=total, cuts=cuts)


def walls_of(load: Load) -> tuple[Wall, ...]:
    """The walls that apply to a load, in the order in which they are asked."""
    names = {"concurrency", "n_requests", *_lengths(load)}
    return applicable(names, standard_walls())


def _first_kill(
    wall: Wall, part: Array, places: dict[str, int], load: Load, batches: Array
) -> NDArray[np.int32]:
    """The first batch that `wall` kills in each (structure, context), by bisection."""
    low = np.zeros((len(part), load.shape[0], 1), dtype=np.int64)
    high = np.full_like(low, len(batches))
    base = FactorColumns(part, places, load)
    while (low < high).any():
        middle = np.minimum((low + high) // 2, len(batches) - 1)
        c = base.with_batch(load, batches[middle])
        passes = wall.demand(c) <= wall.limit(c)
        is_open = low < high
        low = np.where(is_open & passes, middle + 1, low)
        high = np.where(is_open & ~passes, middle, high)
    return low[:, :, 0].astype(np.int32)


def _codes(walls: Sequence[Wall], c: Columns, before: Codes | None = None, first: int = 0) -> Codes:
    """The first of `walls` from `first` on that kills each point, where none did `before`."""
    found = np.full((1, 1, 1), SURVIVOR, dtype=np.int8) if before is None else before
    for code in range(first, len(walls)):
        passes = walls[code].demand(c) <= walls[code].limit(c)
        # Integer arithmetic in place of a choice, which costs ten times as much.
        dead = ((found == SURVIVOR) & ~passes).view(np.int8)
        found = found + np.int8(code - SURVIVOR) * dead
    return found


def _lengths(load: Load) -> dict[str, Any]:
    isl = np.array(load.isl_tokens, dtype=float)[None, :, None]
    osl = np.array(load.osl_tokens, dtype=float)[None, :, None]
    found: dict[str, Any] = {
        "isl_low_tokens": np.maximum(np.floor(isl * load.low), 1.0),
        "osl_low_tokens": np.maximum(np.floor(osl * load.low), 1.0),
        "osl_high_tokens": np.ceil(osl * load.high),
        "shared_tokens": load.shared_tokens,
        "slo_attainment": load.slo.attainment,
    }
    bounds = {"slo_tpot_s": load.slo.tpot_s, "slo_ttft_s": load.slo.ttft_s}
    return found | {name: value for name, value in bounds.items() if value is not None}


def _slices(n: int, height: int) -> Iterator[slice]:
    for start in range(0, n, height):
        yield slice(start, min(n, start + height))
