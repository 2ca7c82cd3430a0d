"""What of a sifted space did not become rows: counted, bounded at peak rates, and told by group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from dse.pipeline.asking import mean_share
from dse.pipeline.grid import Array, Grid, Index
from dse.pipeline.judged import PRICE
from dse.search import Answer
from dse.search.dominance import beaten_by, costs, promise
from dse.space import stride
from dse.study import Study

__all__ = ["Sifted", "groups_of"]

ALL = "all"


@dataclass(slots=True, kw_only=True)
class Sifted:
    """What did not become rows: `grids` of its blocks, `kept` the points that did."""

    study: Study
    n_survivors: int = 0
    grids: list[Grid] = field(default_factory=list)
    kept: pl.Series = field(default_factory=lambda: pl.Series("point", [], dtype=pl.UInt64))

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
        n_left = self.n_survivors - len(self.kept) - n_dropped
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
            group = groups_of(self.study, grid, i + part.start, load)
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


def groups_of(study: Study, grid: Grid, rows: Index, loads: Index) -> pl.Series:
    """What each point is compared with: the value of `compare_by`, if the study has one."""
    if study.compare_by is None:
        return pl.Series("group", [ALL]).new_from_index(0, len(rows))
    return grid.column(study.compare_by, rows, loads).alias("group")


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
