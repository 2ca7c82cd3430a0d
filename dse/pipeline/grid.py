"""A block on axes: layouts of each role, loads, and rows that say which layouts go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dse.pipeline.factored import (
    PRICE,
    block_price,
    layout_facts,
    layout_keys,
    layouts_of,
    replica_column,
)
from dse.pipeline.judged import question_of
from dse.serving.deployment import Deployment, Role
from dse.space import Block, numeric
from dse.study import Study
from dse.walls.broadcast import ALIVE, Ceilings, Codes, split_walls, verdicts
from dse.walls.facts import FactsCache
from dse.walls.judge import FrameColumns
from dse.walls.kinds import Wall

__all__ = ["Grid"]

Index = NDArray[np.int64]
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Deployments whose loads are judged at a time.
_PART = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Legal `rows` of a block, `prefill` and `decode` the index of each row's layouts, which
    `deployments` has by role, and `loads`, its numeric rows. `codes` are verdicts by layouts and
    load (see `verdicts`), an index into `walls`; `demands` is what the wall of load asks, if there
    is one. `price` is NaN where there is none.
    """

    block: Block
    rows: pl.DataFrame
    loads: pl.DataFrame
    prefill: Index
    decode: Index
    n_prefill: Array
    n_decode: Array
    n_gpus: Array
    price: Array
    deployments: Mapping[Role, list[Deployment]]
    codes: Codes
    walls: tuple[Wall, ...]
    demands: tuple[Index, Array] | None
    ceilings: Ceilings

    @classmethod
    def of(cls, study: Study, block: Block, walls: tuple[Wall, ...], cache: FactsCache) -> Grid:
        """The grid of a block whose loads are batches of a closed loop."""
        rows, roles = block.legal(), block.parts.roles
        loads = numeric(study.space, block.branch.name)
        places, facts, deployments = {}, {}, {}
        for role in roles:
            known = layout_facts(block, rows, role, cache)
            first, deployments[role] = layouts_of(block, rows, role)
            places[role] = _places(rows, first, layout_keys(role))
            facts[role] = known.drop(f"_{role}_{name}" for name in layout_keys(role))
        c = _columns(block, facts) | _asked(study, loads)
        fixed, by_load = split_walls(set(c), walls)
        n_first = len(deployments[roles[0]]) if len(roles) > 1 else 1
        shape = (n_first, len(deployments[roles[-1]]), loads.height)
        n_decode = _replicas(rows, roles[-1])
        return cls(
            block=block,
            rows=rows,
            loads=loads,
            prefill=places[roles[0]] if len(roles) > 1 else np.zeros(rows.height, dtype=np.int64),
            decode=places[roles[-1]],
            n_prefill=_replicas(rows, roles[0]),
            n_decode=n_decode,
            n_gpus=rows["n_gpus"].to_numpy().astype(float),
            price=_prices(study, block, rows, facts, places),
            deployments=deployments,
            codes=verdicts(c, fixed, shape),
            walls=(*fixed, *by_load),
            demands=_demands(study, loads, by_load, n_decode),
            ceilings=Ceilings.of(
                c,
                slo_tpot_s=study.slo.tpot_s if study.slo is not None else None,
                is_disaggregated=len(roles) > 1,
            ),
        )

    @property
    def is_shared(self) -> bool:
        """Whether the same replicas prefill and decode."""
        return len(self.block.parts.roles) == 1

    def killed(self) -> dict[str, int]:
        """Points that each wall of structure and lengths kills first."""
        weights = np.zeros(self.codes.shape[:2], dtype=np.int64)
        np.add.at(weights, (self.prefill, self.decode), 1)
        found = {}
        for code, wall in enumerate(self.walls):
            count = int((weights * (self.codes == code).sum(axis=2)).sum())
            if count:
                found[wall.kind] = count
        return found

    def parts(self) -> Iterator[tuple[slice, Flags, int]]:
        """Slices of rows, which of their loads survive, and how many the walls of load kill."""
        for start in range(0, self.rows.height, _PART):
            rows = slice(start, start + _PART)
            alive = self.codes[self.prefill[rows], self.decode[rows]] == ALIVE
            n_before = int(alive.sum())
            if self.demands is not None:
                which, demands = self.demands
                alive &= demands[which[rows]] <= self.most(rows, self.ceilings.decode_in_time)
            yield rows, alive, n_before - int(alive.sum())

    def most(self, rows: slice, decode: Array) -> Array:
        """Output tokens/s of rows at each load, at most, where one replica decodes `decode`."""
        served: Array = self.n_decode[rows, None] * _pairs(decode)[0][self.decode[rows]]
        if self.is_shared:
            return served
        fed = self.n_prefill[rows, None] * _pairs(self.ceilings.prefill)[:, 0][self.prefill[rows]]
        return np.minimum(served, fed)

    def column(self, name: str, rows: Index, loads: Index) -> pl.Series:
        """A column of points as text: of the block, its rows or its loads."""
        if name in self.block.constants:
            return pl.Series(name, [str(self.block.constants[name])]).new_from_index(0, len(rows))
        frame, at = (self.loads, loads) if name in self.loads.columns else (self.rows, rows)
        return frame[name].gather(at).cast(pl.String)

    def distinct(self) -> Index:
        """Rows that are not a smaller cluster's, several times over: per GPU they do the same."""
        n_p = self.n_prefill.astype(np.int64)
        times = np.gcd(n_p, self.n_decode.astype(np.int64))
        keys = np.column_stack(
            [self.prefill, self.decode, n_p // times, self.n_decode.astype(np.int64) // times]
        )
        order = np.lexsort((times, *keys.T))
        ranked = keys[order]
        is_first = np.append(True, (ranked[1:] != ranked[:-1]).any(axis=1))
        return np.sort(order[is_first])


def _columns(block: Block, facts: Mapping[Role, pl.DataFrame]) -> dict[str, Array]:
    """Facts on the axes (prefill layouts, decode layouts, loads)."""
    roles, hardware = block.parts.roles, block.parts.hardware
    own: dict[Role, dict[str, Array]] = {}
    for role, frame in facts.items():
        shape = (-1, 1, 1) if role == "prefill" else (1, -1, 1)
        own[role] = {name: frame[name].to_numpy().reshape(shape) for name in frame.columns}
    found = {k: v for each in own.values() for k, v in each.items() if not k.startswith("_")}
    first, last = own[roles[0]], own[roles[-1]]
    needed = (first[f"_needed_{roles[0]}"], last[f"_needed_{roles[-1]}"])
    limits = (first[f"_limit_{roles[0]}"], last[f"_limit_{roles[-1]}"])
    is_first = limits[0] - needed[0] <= limits[1] - needed[1]
    gpus = (first[f"_gpus_{roles[0]}"], last[f"_gpus_{roles[-1]}"])
    one = np.ones((1, 1, 1))
    fabrics = [float(hardware[role][1].scale_out.n_gpus) for role in roles]
    return found | {
        "n_replicas": one,
        "prefill_n_replicas": one,
        "is_disaggregated": one * float(len(roles) > 1),
        "max_context_tokens": one * float(block.parts.model.max_context_tokens),
        "replica_gpus": np.maximum(*gpus),
        "fabric_gpus": one * min(fabrics),
        "hbm_needed_bytes": np.where(is_first, *needed),
        "hbm_limit_bytes": np.where(is_first, *limits),
    }


def _asked(study: Study, loads: pl.DataFrame) -> dict[str, Array]:
    """What the study asks of one replica, on the axis of loads."""
    asked = loads.with_columns(concurrency="batch", in_flight=pl.col("batch").cast(pl.Float64))
    asked = asked.with_columns(**question_of(study)).select(pl.selectors.numeric())
    return {name: asked[name].cast(pl.Float64).to_numpy()[None, None, :] for name in asked.columns}


def _demands(
    study: Study, loads: pl.DataFrame, walls: Sequence[Wall], n_decode: Array
) -> tuple[Index, Array] | None:
    """What the wall of load demands by number of replicas and load, and which number rows have."""
    if not walls:
        return None
    numbers, which = np.unique(n_decode, return_inverse=True)
    replicas = pl.DataFrame({"_n": numbers})
    asked = replicas.join(loads, how="cross", maintain_order="left_right")
    asked = asked.with_columns(concurrency=pl.col("batch") * pl.col("_n"))
    c = FrameColumns(asked.with_columns(**question_of(study)))
    (wall,) = walls
    return which, np.asarray(wall.demand(c)).reshape(len(numbers), loads.height)


def _places(rows: pl.DataFrame, first: pl.DataFrame, keys: list[str]) -> Index:
    index = first.select(keys).with_row_index("_kind")
    joined = rows.select(keys).join(index, on=keys, how="left", maintain_order="left")
    return joined["_kind"].to_numpy().astype(np.int64)


def _replicas(rows: pl.DataFrame, role: Role) -> Array:
    return rows[replica_column(role)].to_numpy().astype(float)


def _prices(
    study: Study,
    block: Block,
    rows: pl.DataFrame,
    facts: Mapping[Role, pl.DataFrame],
    places: Mapping[Role, Index],
) -> Array:
    """USD per GPU and hour of each row; NaN where there is none."""
    columns = {}
    for role in block.parts.roles:
        columns[f"_n_{role}"] = _replicas(rows, role)
        columns[f"_gpus_{role}"] = facts[role][f"_gpus_{role}"].to_numpy()[places[role]]
    priced = pl.DataFrame(columns).select(block_price(study, block).alias(PRICE))
    found = priced[PRICE].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return np.broadcast_to(found, (rows.height,)).copy()


def _pairs(values: Array) -> Array:
    """Values on all three axes."""
    return values.reshape((1,) * (3 - values.ndim) + values.shape)
