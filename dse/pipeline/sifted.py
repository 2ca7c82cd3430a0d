"""A space beyond what rows can hold: judged by layouts, sifted to what is likely on the front.

Every point is judged and counted, as in `judged`, but on axes instead of rows; the likely best of
each group become rows, many more than the budget simulates. What is left is bounded by its hardware
floors once the search knows members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from dse.base.errors import DseError
from dse.pipeline.asking import mean_share
from dse.pipeline.closed import Sifted, groups_of
from dse.pipeline.grid import Flags, Grid, Index
from dse.pipeline.judged import (
    LONGEST,
    PRICE,
    Judged,
    Rows,
    misses_of,
    points_of,
    spread,
    without_illegal,
)
from dse.search.pools import Decoding, Lengths, Prefilling
from dse.search.sieve import Deployments, Sieve, guessed
from dse.serving.deployment import Deployment, Role
from dse.sim import compile_pool
from dse.sim.spec import PoolSpec
from dse.space import blocks, numeric, stride
from dse.study import Study
from dse.walls.broadcast import ALIVE
from dse.walls.facts import FactsCache
from dse.walls.judge import standard_walls
from dse.walls.kinds import Wall

__all__ = ["sift"]

# Misses are looked for in so many rows of a block, a wall.
_MISSED = 3


def sift(study: Study) -> Judged:
    """Judge every point of `study`, which `dse.study.vast.is_vast`, and make rows of the likely
    best.
    """
    found, sifted, cache, walls = Judged(), Sifted(study=study), FactsCache(), standard_walls()
    sieve = Sieve(objectives=study.parts, tolerance=study.search.tolerance)
    for block in blocks(study.space, study.catalog):
        rows, height = block.rows(), numeric(study.space, block.branch.name).height
        found.n_structural += rows.height
        if without_illegal(block, rows, height, found).is_empty():
            continue
        grid = Grid.of(study, block, walls, cache)
        _count(grid, found, sifted)
        for guess in _guesses(study, grid):
            sieve.add(guess, grid=len(sifted.grids))
        sifted.grids.append(grid)
    _make_rows(study, sieve.kept(), found, sifted, cache, walls)
    found.n_survivors, found.close = sifted.n_survivors, sifted.closed
    return found


def _count(grid: Grid, found: Judged, sifted: Sifted) -> None:
    """Add the verdicts on all points of a grid."""
    killed = Counter(grid.killed())
    n_points = grid.rows.height * grid.loads.height
    by_load = sum(n for _, _, n in grid.parts())
    if by_load:
        killed[grid.walls[-1].kind] += by_load
    found.n_candidates += n_points
    found.killed.update(killed)
    sifted.n_survivors += n_points - sum(killed.values())


def _guesses(study: Study, grid: Grid) -> Iterator[pl.DataFrame]:
    """Likely metrics of the grid's rows, without those that only repeat a smaller cluster's."""
    # A cluster that is a smaller one several times over may stand for it where nobody asks which.
    is_asked = study.constraints or study.compare_by in grid.rows.columns
    rows = np.arange(grid.rows.height) if is_asked else grid.distinct()
    loads, share = grid.loads, mean_share(study)
    contexts = loads.select("isl_tokens", "osl_tokens").unique(maintain_order=True)
    lengths = [_lengths(study, isl, osl, share) for isl, osl in contexts.iter_rows()]
    place = contexts.with_row_index("_length")
    of_length = loads.join(place, on=["isl_tokens", "osl_tokens"], maintain_order="left")["_length"]
    roles, alive = grid.block.parts.roles, grid.codes == ALIVE
    pools = {
        role: _pools(grid.deployments[role], role, alive.any(axis=(1 - side, 2)))
        for role, side in zip(roles, (0, 1) if len(roles) > 1 else (1,), strict=True)
    }
    prefilling = Prefilling.of(pools[roles[0]], lengths)
    batch = loads["batch"].to_numpy().astype(float)
    asked = Deployments(
        prefill=grid.prefill[rows],
        decode=grid.decode[rows],
        n_prefill=grid.n_prefill[rows].astype(np.float32),
        n_decode=grid.n_decode[rows].astype(np.float32),
        n_gpus=grid.n_gpus[rows].astype(np.float32),
        price=grid.price[rows].astype(np.float32),
        of_length=of_length.to_numpy().astype(np.int64),
        batch=batch.astype(np.float32),
        alive=alive,
        measured=_measured(study),
    )
    decoding = Decoding.of(
        pools[roles[-1]],
        prefilling,
        lengths,
        (asked.of_length, batch),
        is_shared=grid.is_shared,
    )
    for guess in guessed(asked, prefilling, decoding, lengths, study.slo, is_shared=grid.is_shared):
        at, load = rows[guess["row"].to_numpy()], guess["load"].to_numpy()
        group = groups_of(study, grid, at, load)
        yield guess.with_columns(group=group, row=pl.Series(at))


def _lengths(study: Study, isl: int, osl: int, share: float) -> Lengths:
    low, high = spread(study)
    return Lengths(
        isl=max(isl * share, 1.0),
        osl=max(osl * share, 1.0),
        lowest=max(isl * low, 1.0) + 1.0,
        highest=(isl + osl) * (high if high < LONGEST else 1.0) + 1.0,
    )


def _measured(study: Study) -> float:
    """The share of requests that a loop's start asks at once, where they count."""
    requests = study.asked.file.requests
    is_steady = study.asked.file.stopping.measure == "steady"
    if requests is None or not requests.per_concurrency or is_steady:
        return 0.0
    return 1.0 / max(float(requests.count), 1.0)


def _pools(deployments: Sequence[Deployment], role: Role, used: Flags) -> list[PoolSpec | None]:
    """The pool of each layout; None where no load survives on it, or it cannot be compiled."""
    found: list[PoolSpec | None] = []
    for deployment, is_used in zip(deployments, used.tolist(), strict=True):
        try:
            found.append(compile_pool(deployment, role) if is_used else None)
        except DseError:
            found.append(None)
    return found


def _make_rows(
    study: Study,
    best: pl.DataFrame,
    found: Judged,
    sifted: Sifted,
    cache: FactsCache,
    walls: Sequence[Wall],
) -> None:
    """Judge the rows of what was kept and of the nearest misses, as `judge_space` does."""
    rows_of = Rows(found=found)
    for i, grid in enumerate(sifted.grids):
        mine = best.filter(pl.col("grid") == i) if best.height else best
        wanted = np.unique(np.concatenate([mine["row"].to_numpy(), _missed(grid)])).astype(int)
        if not len(wanted):
            continue
        part = grid.rows[wanted]
        columns, facts, judged = points_of(study, grid.block, part, cache, walls)
        rows_of.miss(grid.block, part, misses_of(judged, columns, walls))
        point = _points(study, grid, mine["row"].to_numpy(), mine["load"].to_numpy())
        alive = judged.filter(pl.col("killed_by").is_null(), pl.col("point").is_in(point.implode()))
        rows_of.keep(grid.block, part, alive.select(*columns.columns, PRICE), facts)
    rows_of.settle(study)
    sifted.kept = found.survivors["point"]


def _missed(grid: Grid) -> Index:
    """A few rows of each wall that kills."""
    found = []
    for code in range(len(grid.walls)):
        pairs = (grid.codes == code).any(axis=2)
        found.append(np.flatnonzero(pairs[grid.prefill, grid.decode])[:_MISSED])
    return np.concatenate(found)


def _points(study: Study, grid: Grid, rows: Index, loads: Index) -> pl.Series:
    """The numbers of points (see `dse.space.points`)."""
    place = grid.rows["_row"].to_numpy().astype(np.uint64)[rows.astype(int)]
    structure = place + np.uint64(grid.block.offset)
    return pl.Series("point", structure * np.uint64(stride(study.space)) + loads.astype(np.uint64))
