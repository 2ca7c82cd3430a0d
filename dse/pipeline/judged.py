"""Space → survivors: structures in groups, facts once a deployment, every wall over all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import polars as pl

from dse.pipeline.factored import PRICE, block_facts, legal_rows, refused_rows
from dse.search import Answer
from dse.space import (
    Block,
    Structure,
    block_points,
    block_structures,
    blocks,
    numeric,
    points,
)
from dse.study import Study
from dse.study.room import Room, most_survivors
from dse.walls.facts import FactsCache
from dse.walls.judge import facts_frame, judge, question_columns, standard_walls
from dse.walls.kinds import Wall

__all__ = [
    "PRICE",
    "Judged",
    "Rows",
    "expected_survivors",
    "judge_space",
    "misses_of",
    "points_of",
    "question_of",
    "shared_names",
    "spread",
    "without_illegal",
]

GROUP_POINTS = 1 << 16
MISSES = 6
SAMPLED = 100  # structures of a block
# Lengths without a bound of their own: floors take one token, ceilings this many contexts.
LONGEST = 1e6
MISS_COLUMNS = ("reason", "demand", "limit", "unit", "margin")


@dataclass(slots=True, kw_only=True)
class Judged:
    """What the walls left of a space, and what they took.

    `survivors` has the points' columns and `usd_per_gpu_hour`, one row a point, sorted by `point`;
    `structures` and `facts` are those of its structures. Counts are of points. `misses` are the
    killed points nearest to a limit, a few for each wall; `missed` their structures; `refused` the
    first illegal structure of each rule. Where more points survive than there are rows,
    `n_survivors` counts them, and `close` makes the answer of the rows one of all.
    """

    survivors: pl.DataFrame = field(default_factory=pl.DataFrame)
    facts: pl.DataFrame = field(default_factory=pl.DataFrame)
    structures: dict[int, Structure] = field(default_factory=dict)
    n_candidates: int = 0
    n_structural: int = 0
    illegal: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    screened: Counter[str] = field(default_factory=Counter)
    misses: pl.DataFrame = field(default_factory=pl.DataFrame)
    missed: dict[int, Structure] = field(default_factory=dict)
    refused: list[Structure] = field(default_factory=list)
    n_survivors: int = 0
    close: Callable[[Answer], Answer] | None = None


def judge_space(study: Study, most: int | None = None) -> Judged:
    """Judge every point of `study`; memory grows with survivors, not with candidates. `StudyError`
    beyond `most` survivors (default: what free memory holds), or once far more are expected.
    """
    found, cache, walls = Judged(), FactsCache(), standard_walls()
    room = Room(
        study=study,
        most=most_survivors() if most is None else most,
        expected=partial(expected_survivors, study),
    )
    rows_of = Rows(found=found)
    for block in blocks(study.space, study.catalog):
        rows = block.rows()
        found.n_structural += rows.height
        height = numeric(study.space, block.branch.name).height
        for part in without_illegal(block, rows, height, found).iter_slices(_most(height)):
            columns, facts, judged = points_of(study, block, part, cache, walls)
            found.n_candidates += judged.height
            found.killed.update(_counted(judged, "killed_by"))
            alive = _screened(study, judged.filter(pl.col("killed_by").is_null()), found)
            rows_of.miss(block, part, misses_of(judged, columns, walls))
            rows_of.keep(block, part, alive.select(*columns.columns, PRICE), facts)
            room.take(alive.height, found.n_candidates)
    rows_of.settle(study)
    return found


@dataclass(slots=True, kw_only=True)
class Rows:
    """Gathers the survivors and misses of blocks for `found`."""

    found: Judged
    kept: list[pl.DataFrame] = field(default_factory=list)
    facts: list[pl.DataFrame] = field(default_factory=list)
    misses: list[pl.DataFrame] = field(default_factory=list)

    def keep(
        self, block: Block, part: pl.DataFrame, alive: pl.DataFrame, facts: pl.DataFrame
    ) -> None:
        """Take in survivors of a block's rows `part`."""
        self.kept.append(alive)
        self.facts.append(facts.join(alive, on="structure", how="semi").drop(PRICE))
        self.found.structures |= _structures(block, part, self.facts[-1])

    def miss(self, block: Block, part: pl.DataFrame, misses: pl.DataFrame) -> None:
        """Take in the killed points of a block's rows `part`, of which the nearest are kept."""
        self.misses.append(_best_misses([misses]))
        self.found.missed |= _structures(block, part, self.misses[-1])

    def settle(self, study: Study) -> None:
        """Make one frame of each kind."""
        found, kept = self.found, self.kept
        if not kept:  # nothing is legal: no rows, but the columns that rows would have
            columns = points(study.space, found.refused).collect().clear()
            kept = [columns.with_columns(pl.lit(None, pl.Float64).alias(PRICE))]
        survivors = pl.concat(kept, how="diagonal_relaxed").sort("point")
        found.survivors = survivors.select(pl.exclude(PRICE), PRICE)
        found.n_survivors = survivors.height
        facts = self.facts or [facts_frame([], [], on="structure")]
        found.facts = pl.concat(facts, how="diagonal_relaxed")
        if self.misses:
            nearest = _best_misses(self.misses)
            found.misses = nearest.select(pl.exclude(MISS_COLUMNS), *MISS_COLUMNS)
            found.missed = {i: found.missed[i] for i in found.misses["structure"].to_list()}


def expected_survivors(study: Study, enough: float = 0.0) -> float:
    """About how many points of `study` survive, from a random few structures of each block; all
    that are legal where those are no more than `enough`.
    """
    cache, walls, unused = FactsCache(), standard_walls(), Judged()
    heights = (
        block.legal().height * numeric(study.space, block.branch.name).height
        for block in blocks(study.space, study.catalog)
    )
    if (n_legal := sum(heights)) <= enough:
        return float(n_legal)
    total = 0.0
    for block in blocks(study.space, study.catalog):
        legal = block.legal()
        if legal.is_empty():
            continue
        fitting = _most(numeric(study.space, block.branch.name).height)
        part = legal.sample(min(SAMPLED, fitting, legal.height), seed=0)
        *_, judged = points_of(study, block, part, cache, walls)
        alive = _screened(study, judged.filter(pl.col("killed_by").is_null()), unused)
        total += alive.height * legal.height / part.height
    return total


def question_of(study: Study) -> dict[str, pl.Expr]:
    """The columns that the study's lengths, SLO and number of requests add to every point."""
    low, high = spread(study)
    requests = study.asked.file.requests
    counted: dict[str, float] = {}
    if requests is not None and requests.per_concurrency:
        counted["requests_per_concurrency"] = float(requests.count)
    elif requests is not None:
        counted["n_requests"] = float(requests.count)
    shared = float(study.asked.file.shared_prefix_tokens)
    return question_columns(slo=study.slo, low=low, high=high, shared_tokens=shared, **counted)


def spread(study: Study) -> tuple[float, float]:
    """The least and the greatest length as a multiple of the context's, both finite."""
    low, high = study.asked.spread
    return low, min(high, LONGEST)


def _most(height: int) -> int:
    """Structures that are judged at once."""
    return max(1, GROUP_POINTS // max(height, 1))


def without_illegal(block: Block, rows: pl.DataFrame, height: int, found: Judged) -> pl.DataFrame:
    """The legal rows of a block; the others are counted by their first rule."""
    refused = refused_rows(block, rows)
    firsts = refused.group_by("rule", maintain_order=True).agg(pl.len(), pl.col("_row").first())
    for rule, count, row in firsts.iter_rows():
        if rule not in found.illegal:
            found.refused += block_structures(block, rows.filter(pl.col("_row") == row))
        found.illegal[rule] += count * height
        found.n_candidates += count * height
    return legal_rows(rows, refused)


def _structures(block: Block, rows: pl.DataFrame, named: pl.DataFrame) -> dict[int, Structure]:
    """The structures of `rows` whose index `named` has."""
    wanted = named.select((pl.col("structure") - block.offset).cast(pl.UInt32).alias("_row"))
    chosen = rows.join(wanted, on="_row", how="semi", maintain_order="left")
    return {each.index: each for each in block_structures(block, chosen)}


def points_of(
    study: Study, block: Block, part: pl.DataFrame, cache: FactsCache, walls: Sequence[Wall]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The points of legal rows of a block, the facts of their structures, and both judged."""
    facts = block_facts(study, block, part, cache)
    columns = block_points(study.space, block, part).collect()
    return columns, facts, _judged(study, columns, facts, walls)


def _judged(
    study: Study, columns: pl.DataFrame, facts: pl.DataFrame, walls: Sequence[Wall]
) -> pl.DataFrame:
    # A fact wins over the column of its name, which is null where the roles are apart: `dp`.
    joined = (
        columns.lazy()
        .drop(shared_names(columns, facts))
        .join(facts.lazy(), on="structure", how="left")
    )
    judged = judge(joined.with_columns(**question_of(study)), walls)
    # Of a hundred facts no one asks again; without them the rest takes half the time.
    asked = {name for screen in study.screens for name in screen.columns} | {PRICE, "killed_by"}
    asked |= {name for wall in walls for name in (wall.demand_column, wall.limit_column)}
    names = [name for name in judged.collect_schema().names() if name in asked - {*columns.columns}]
    found = columns.lazy().join(judged.select("point", *names), on="point", how="left")
    return found.sort("point").collect()


def shared_names(columns: pl.DataFrame, facts: pl.DataFrame) -> list[str]:
    """The names that points and facts both have, but for the key that joins them."""
    return sorted(set(columns.columns) & set(facts.columns) - {"structure"})


def _screened(study: Study, alive: pl.DataFrame, found: Judged) -> pl.DataFrame:
    """Apply the study's own cuts one after the other, each counted by its text."""
    for screen in study.screens:
        kept = alive.filter(screen.expr())
        found.screened[screen.text] += alive.height - kept.height
        alive = kept
    return alive


def _counted(judged: pl.DataFrame, column: str) -> dict[str, int]:
    counts = judged.filter(pl.col(column).is_not_null()).group_by(column).len()
    return {str(row[0]): int(row[1]) for row in counts.iter_rows()}


def misses_of(judged: pl.DataFrame, columns: pl.DataFrame, walls: Sequence[Wall]) -> pl.DataFrame:
    """The columns of points and of misses, of the nearest of each wall."""
    return _nearest(judged, walls).select(*columns.columns, *MISS_COLUMNS)


def _nearest(judged: pl.DataFrame, walls: Sequence[Wall]) -> pl.DataFrame:
    """Of the structures killed, those with the smallest demand ÷ limit − 1, each at its nearest
    point, a few for each wall.
    """
    parts = []
    for wall in walls:
        if wall.demand_column not in judged.columns:
            continue
        killed = judged.filter(pl.col("killed_by") == wall.kind).with_columns(
            reason=pl.lit(wall.kind),
            demand=pl.col(wall.demand_column).cast(pl.Float64),
            limit=pl.col(wall.limit_column).cast(pl.Float64),
            unit=pl.lit(wall.unit),
        )
        scored = killed.with_columns(margin=pl.col("demand") / pl.col("limit") - 1.0)
        ranked = scored.filter(pl.col("margin").is_finite()).sort("margin", "point")
        parts.append(ranked.unique("structure", keep="first", maintain_order=True).head(MISSES))
    empty = judged.clear().with_columns(reason=pl.lit(""), unit=pl.lit(""))
    parts.append(empty.with_columns(pl.lit(0.0).alias(n) for n in ("demand", "limit", "margin")))
    return pl.concat(parts, how="diagonal_relaxed")


def _best_misses(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The nearest miss of each structure and wall, nearest first, a few for each wall."""
    rows = pl.concat(list(parts), how="diagonal_relaxed")
    nearest = rows.sort("margin", "point").unique(["structure", "reason"], keep="first")
    ranked = nearest.sort("margin", "point").group_by("reason", maintain_order=True)
    return ranked.head(MISSES).sort("margin", "point")
