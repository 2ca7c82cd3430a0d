"""Space → points: structures one by one, numeric axes as columns, and the size before either."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import polars as pl

from dse.base.units import counted
from dse.catalog import Catalog
from dse.serving.deployment import Role
from dse.serving.legality import Illegal
from dse.space.blocks import Block, Blocks
from dse.space.layouts import prefix
from dse.space.records import Branch, Space
from dse.space.structure import Cell, Structure
from dse.space.where import Where
from dse.space.words import NUMERIC

__all__ = [
    "Size",
    "axis_sizes",
    "block_points",
    "block_structures",
    "blocks",
    "numeric",
    "points",
    "size",
    "stride",
    "structures",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many points a space has, counted without building them.

    `axes` has the number of values of each axis by branch and name, `branches` the points of each
    branch. Illegal combinations are points too: they are counted with their reasons when judged.
    """

    n_points: int
    n_structural: int
    axes: Mapping[str, Mapping[str, int]]
    branches: Mapping[str, int]


def structures(space: Space, catalog: Catalog) -> Iterator[Structure]:
    """Yield every structure that the structural conditions allow, in order of its index."""
    for block in blocks(space, catalog):
        yield from block_structures(block, block.rows())


def blocks(space: Space, catalog: Catalog) -> Iterator[Block]:
    """Yield the space in blocks: the structures that share one assignment of its dimensions."""
    yield from Blocks(space, catalog)


def numeric(space: Space, branch: str) -> pl.DataFrame:
    """Return the numeric axes of a branch as rows: `context`, `isl_tokens`, `osl_tokens`, the rest.

    Conditions on numeric axes alone are applied; the last axis varies fastest.
    """
    found = space.branch(branch)
    return _numeric(found.contexts, tuple(found.numeric.items()), found.where)


@lru_cache(maxsize=256)
def _numeric(
    contexts: tuple[Any, ...],
    axes: tuple[tuple[str, tuple[int | float, ...]], ...],
    conditions: tuple[Where, ...],
) -> pl.DataFrame:
    names = ("isl_tokens", "osl_tokens", *(name for name, _ in axes))
    rows = [(*context, *rest) for context, *rest in product(contexts, *(v for _, v in axes))]
    frame = pl.DataFrame(rows, schema={name: NUMERIC[name] for name in names}, orient="row")
    held = [where.expr() for where in conditions if where.columns <= set(names)]
    context = pl.format("{}/{}", "isl_tokens", "osl_tokens").alias("context")
    return frame.filter(*held).select(context, *names)


def stride(space: Space) -> int:
    """Return the most numeric rows that a branch has: what one structure's index is worth."""
    return max((numeric(space, branch.name).height for branch in space.branches), default=0)


def points(space: Space, chosen: Iterable[Structure]) -> pl.LazyFrame:
    """Return the points of some structures: each joined with its branch's numeric axes.

    `point` is `structure index × stride + numeric row`: it names the same point whatever else is
    enumerated. `structure` is the index; `concurrency` is batch × replicas where a batch is given.
    Rows come in no order; sort by `point` where it matters.
    """
    groups: dict[str, list[Structure]] = {}
    for structure in chosen:
        groups.setdefault(structure.branch, []).append(structure)
    frames = [_joined(space, space.branch(name), group) for name, group in groups.items()]
    if not frames:
        schema = {"point": pl.UInt64, "structure": pl.UInt64, "branch": pl.String}
        return pl.LazyFrame(schema=schema)
    return pl.concat(frames, how="diagonal_relaxed")


def size(space: Space, catalog: Catalog, *, seen: Callable[[Block], None] | None = None) -> Size:
    """Count a space's points and structures, in all and by branch, and the values of its axes;
    `seen` is given each block on the way, as making one is most of the work.
    """
    structural = dict.fromkeys((branch.name for branch in space.branches), 0)
    counted = dict.fromkeys(structural, 0)
    for block in Blocks(space, catalog):
        if seen is not None:
            seen(block)
        name = block.branch.name
        rows, n_points = _count(space, block)
        structural[name] += rows
        counted[name] += n_points
    return Size(
        n_points=sum(counted.values()),
        n_structural=sum(structural.values()),
        axes={branch.name: axis_sizes(branch) for branch in space.branches},
        branches=counted,
    )


def _count(space: Space, block: Block) -> tuple[int, int]:
    """Return the structures and the points of a block."""
    inner = numeric(space, block.branch.name)
    if not block.branch.where:
        height = block.lattice.frame.height
        return height, height * inner.height
    rows = block.rows()
    mixed = _mixed(block.branch, {*rows.columns, *block.constants}, inner)
    if not mixed:
        return rows.height, rows.height * inner.height
    named = {name for where in mixed for name in where.columns}
    frame = block.frame().lazy().join(rows.lazy().select("_row"), on="_row", how="semi")
    joined = _with_concurrency(frame.join(inner.lazy(), how="cross"))
    held = joined.select(*sorted(named)).filter(*(where.expr() for where in mixed))
    return rows.height, held.select(pl.len()).collect().item()


def _mixed(branch: Branch, structural: set[str], inner: pl.DataFrame) -> list[Where]:
    """Return the conditions that need structural and numeric columns at once."""
    return [
        where
        for where in branch.where
        if not (where.columns <= set(inner.columns))
        and any(name in NUMERIC for name in where.columns)
    ]


def _shown(block: Block) -> list[str]:
    """The columns of a lattice that a point shows."""
    names = block.lattice.frame.columns
    hidden = {f"_{role}" for role in block.parts.roles}
    return [each for each in names if each not in hidden and each[-8:] != "_replica"]


def block_structures(block: Block, rows: pl.DataFrame) -> Iterator[Structure]:
    """Yield the structures of some of a block's rows."""
    roles, shown = block.parts.roles, _shown(block)
    reasons, constants, name = block.lattice.reasons, block.constants, block.branch.name
    hidden = ["_row", *(f"_{role}" for role in roles)]
    replicas = shown.index(f"{prefix(roles[0])}n_replicas")
    for row in rows.select(*shown, *hidden).iter_rows():
        cells, (number, *broken) = row[: len(shown)], row[len(shown) :]
        columns = {**constants, **dict(zip(shown, cells, strict=True))}
        illegal = sum((reasons[each] for each in broken), ()) if any(broken) else ()
        if cells[replicas] is None:
            illegal = (*illegal, _unfilled(columns, roles))
            columns = {key: cell for key, cell in columns.items() if cell is not None}
        yield Structure(
            index=block.offset + number,
            branch=name,
            columns=columns,
            illegal=illegal,
            parts=block.parts,
        )


def _unfilled(columns: Mapping[str, Cell], roles: tuple[Role, ...]) -> Illegal:
    """Return why no whole number of replicas fills the cluster."""
    n_gpus = columns["n_gpus"]
    sizes = [_replica_gpus(columns, prefix(role)) for role in roles]
    if len(sizes) == 1:
        total = int(n_gpus)
        reason = f"{counted(total, 'GPU')} % {sizes[0]} GPUs of a replica = {total % sizes[0]}"
        below = int(n_gpus) // sizes[0] * sizes[0]
        nearest = tuple(f"gpus={each}" for each in (below, below + sizes[0]) if each)
        return Illegal(rule="cluster", reason=reason, nearest=nearest)
    total_text = counted(int(n_gpus), "GPU")
    reason = f"no split of {total_text} into prefill replicas of {sizes[0]} and decode replicas "
    return Illegal(rule="cluster", reason=f"{reason}of {sizes[1]} fills them")


def _replica_gpus(columns: Mapping[str, Cell], before: str) -> int:
    return math.prod(int(columns[f"{before}{name}"]) for name in ("tp", "dp", "pp"))


def block_points(space: Space, block: Block, rows: pl.DataFrame) -> pl.LazyFrame:
    """Return the points of some legal rows of a block; see `points`."""
    cells = [pl.lit(cell, _type(cell)).alias(name) for name, cell in block.constants.items()]
    index = (pl.col("_row").cast(pl.UInt64) + block.offset).alias("structure")
    frame = rows.select(*cells, pl.col(*_shown(block)).cast(pl.Int64), index)
    facts = {
        name: pl.lit(cell, _type(cell))
        for name in _needed(block.branch, frame.columns)
        if (cell := block.parts.fact(name)) is not None
    }
    return _with_numeric(space, block.branch, frame.with_columns(**facts), [*facts])


def _type(cell: Cell) -> pl.DataType:
    kinds: dict[type, pl.DataType] = {str: pl.String(), int: pl.Int64(), float: pl.Float64()}
    return kinds[type(cell)]


def _joined(space: Space, branch: Branch, chosen: list[Structure]) -> pl.LazyFrame:
    """Return structures × numeric rows of one branch, the remaining conditions applied."""
    replicas = [f"{prefix(role)}n_replicas" for role in chosen[0].parts.roles] + ["n_replicas"]
    cells = dict.fromkeys([*(name for each in chosen for name in each.columns), *replicas])
    data = {name: [each.columns.get(name) for each in chosen] for name in cells}
    integers = dict.fromkeys(replicas, pl.Int64)
    frame = pl.DataFrame(data, schema_overrides=integers).with_columns(
        pl.Series("structure", [each.index for each in chosen], dtype=pl.UInt64)
    )
    needed = _needed(branch, frame.columns)
    facts = [pl.Series(name, [each.fact(name) for each in chosen]) for name in needed]
    return _with_numeric(space, branch, frame.with_columns(facts), needed)


def _needed(branch: Branch, known: list[str]) -> list[str]:
    """The facts that conditions on structure and numbers at once read beside the cells."""
    inner = _numeric(branch.contexts, tuple(branch.numeric.items()), branch.where)
    mixed = _mixed(branch, set(known), inner)
    return sorted({name for where in mixed for name in where.columns if "." in name} - set(known))


def _with_numeric(
    space: Space, branch: Branch, frame: pl.DataFrame, facts: list[str]
) -> pl.LazyFrame:
    """Return the rows of `frame` × the numeric rows of a branch, without its `facts`."""
    inner = numeric(space, branch.name)
    mixed = _mixed(branch, set(frame.columns), inner)
    cells = [name for name in frame.columns if name not in {"structure", *facts}]
    numbered = inner.with_row_index("_numeric").with_columns(pl.col("_numeric").cast(pl.UInt64))
    joined = frame.lazy().join(numbered.lazy(), how="cross")
    width = pl.lit(stride(space), dtype=pl.UInt64)
    point = (pl.col("structure") * width + pl.col("_numeric")).alias("point")
    full = _with_concurrency(joined).filter(*(each.expr() for each in mixed))
    return full.select(
        point, "structure", *cells, pl.exclude("point", "structure", "_numeric", *cells, *facts)
    )


def _with_concurrency(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the requests in flight that keep every replica's batch full."""
    names = frame.collect_schema().names()
    if "batch" not in names or "concurrency" in names:
        return frame
    return frame.with_columns((pl.col("batch") * pl.col("n_replicas")).alias("concurrency"))


def axis_sizes(branch: Branch) -> dict[str, int]:
    """Return the number of values of each axis of a branch, by name."""
    found = {"+".join(each.names): len(each.rows) for each in branch.dimensions}
    for role, degrees in branch.degrees.items():
        for name in ("tp", "dp", "ep", "pp", "cp"):
            values = getattr(degrees, name)
            if not isinstance(values, str) and len(values) > 1:
                found[f"{prefix(role)}{name}"] = len(values)
    found["n_gpus"] = len(branch.n_gpus) or 1
    found["context"] = len(branch.contexts)
    return found | {name: len(values) for name, values in branch.numeric.items()}
