"""A space beyond what rows can hold: judged by layouts, sifted to what is likely on the front.

Every point is judged and counted, as in `judged`, but on axes instead of rows; the likely best of
each group become rows, many more than the budget simulates. What is left is bounded by its hardware
floors once the search knows members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from dse.base.errors import DseError
from dse.pipeline.asking import mean_share
from dse.pipeline.grid import Array, Flags, Grid, Index
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
from dse.search import Answer
from dse.search.dominance import beaten_by, costs, promise
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

__all__ = ["Sifted", "sift"]

ALL = "all"
# Misses are looked for in so many rows of a block, a wall.
_MISSED = 3


@dataclass(slots=True, kw_only=True)
class Sifted:
    """What did not become rows: `grids` of its blocks, `kept` the points that did."""

    study: Study
    n_survivors: int = 0
    grids: list[Grid] = field(default_factory=list)
    kept: pl.Series = field(default_factory=lambda: pl.Series("point", [], dtype=pl.UInt64))
    n_rows: int = 0

    def closed(self, answer: Answer) -> Answer:
        """`answer` of the rows, whose certificate speaks of every survivor: those that hardware
        floors prove to be beaten by its front are dropped, the others undecided.
        """
        n_dropped, best = 0, 0.0
        fronts = _fronts(answer, self.study)
        for grid in self.grids:
            beaten, most = self._beaten(grid, fronts)
            n_dropped, best = n_dropped + beaten, max(best, most)
        known = answer.certificate
        n_left = self.n_survivors - self.n_rows - n_dropped
        dropped = Counter(known.n_dropped) + Counter({"hardware": n_dropped})
        certificate = replace(
            known,
            n_survivors=self.n_survivors,
            n_dropped=dict(dropped),
            n_left=known.n_left + n_left,
            gap=max(known.gap, best),
        )
        return replace(answer, certificate=certificate)

    def _beaten(self, grid: Grid, fronts: dict[str, Array]) -> tuple[int, float]:
        """Points of `grid` that are no rows and that their group's front beats by hardware floors,
        and the most by which another may beat it.
        """
        own = self.kept.filter(self.kept.is_between(*_ends(self.study, grid)))
        rows, loads = _at(self.study, grid, own.to_numpy())
        n_dropped, best = 0, 0.0
        for part, alive, _ in grid.parts():
            here = (rows >= part.start) & (rows < part.stop)
            alive[rows[here] - part.start, loads[here]] = False
            i, load = np.nonzero(alive)
            values = costs(_floors(self.study, grid, part, i, load), self.study.parts)
            group = _groups(self.study, grid, i + part.start, load)
            for name in group.unique().to_list():
                mine = values[(group == name).to_numpy()]
                members = fronts.get(name, np.empty((0, values.shape[1])))
                is_beaten = beaten_by(members, mine, self.study.search.tolerance) >= 0
                n_dropped += int(is_beaten.sum())
                left = mine[~is_beaten]
                if len(left):
                    most = float(np.expm1(max(promise(members, left).max(), 0.0)))
                    best = max(best, most if len(members) else np.inf)
        return n_dropped, best


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
    rows = np.arange(grid.rows.height) if study.compare_by == "n_gpus" else grid.distinct()
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
        group = _groups(study, grid, at, load)
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
        part = grid.rows[wanted]
        columns, facts, judged = points_of(study, grid.block, part, cache, walls)
        rows_of.miss(grid.block, part, misses_of(judged, columns, walls))
        point = _points(study, grid, mine["row"].to_numpy(), mine["load"].to_numpy())
        alive = judged.filter(pl.col("killed_by").is_null(), pl.col("point").is_in(point.implode()))
        rows_of.keep(grid.block, part, alive.select(*columns.columns, PRICE), facts)
    rows_of.settle(study)
    sifted.kept = found.survivors["point"]
    sifted.n_rows = found.survivors.height


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


def _ends(study: Study, grid: Grid) -> tuple[int, int]:
    """The first and the last number that a point of the grid may have."""
    width, height = stride(study.space), grid.block.lattice.frame.height
    return grid.block.offset * width, (grid.block.offset + height) * width - 1


def _at(study: Study, grid: Grid, points: Index) -> tuple[Index, Index]:
    """The rows and loads of points of the grid."""
    width = stride(study.space)
    structure = points.astype(np.int64) // width - grid.block.offset
    rows = np.searchsorted(grid.rows["_row"].to_numpy().astype(np.int64), structure)
    return rows, points.astype(np.int64) % width


def _groups(study: Study, grid: Grid, rows: Index, loads: Index) -> pl.Series:
    """What each point is compared with: the value of `compare_by`, if the study has one."""
    if study.compare_by is None:
        return pl.Series("group", [ALL]).new_from_index(0, len(rows))
    return grid.column(study.compare_by, rows, loads).alias("group")


def _floors(study: Study, grid: Grid, part: slice, i: Index, load: Index) -> pl.DataFrame:
    """The objectives' bounds at peak rates of points of a part of the grid (see `asking`)."""
    ceilings, row = grid.ceilings, i + part.start
    p, d = grid.prefill[row], grid.decode[row]
    n_gpus = grid.n_gpus[row]
    output = grid.most(part, ceilings.decode)[i, load] / n_gpus
    osl = grid.loads["osl_tokens"].to_numpy().astype(float)[load]
    metrics = {
        "output_tok_per_s_per_gpu": output,
        "goodput_req_per_s_per_gpu": output / (osl * mean_share(study)),
        "tpot_mean_s": np.broadcast_to(ceilings.tpot_s, grid.codes.shape)[p, d, load],
        "ttft_mean_s": np.broadcast_to(ceilings.ttft_s, grid.codes.shape)[p, d, load],
        PRICE: grid.price[row],
        "n_gpus": n_gpus,
    }
    frame = pl.DataFrame(metrics).with_columns(pl.col(PRICE).fill_nan(None))
    seen = frame.with_columns(
        part.view() for part in study.parts if set(part.needs) <= set(frame.columns)
    )
    absent = [o.column for o in study.parts if o.column not in seen.columns]
    return seen.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)


def _fronts(answer: Answer, study: Study) -> dict[str, Array]:
    """The costs of each group's front."""
    able = answer.frame.filter("feasible")
    if study.compare_by is None:
        return {ALL: costs(able, study.parts)}
    named = able.with_columns(pl.col(study.compare_by).cast(pl.String).alias("_group"))
    parts = named.partition_by("_group", as_dict=True)
    return {str(name): costs(part, study.parts) for (name,), part in parts.items()}
