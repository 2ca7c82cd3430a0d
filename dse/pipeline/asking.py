"""What the search is asked: objectives, what makes a point feasible, and what bounds it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from dse.pareto import OBJECTIVES
from dse.pipeline.judged import PRICE, Judged, question_of, shared_names
from dse.run.evaluate import Evaluator
from dse.search import Bound, Evaluate, Question, Round
from dse.search.engine_bound import EngineBound
from dse.space.where import Where
from dse.study import Study
from dse.study.grammar import UniformLengths
from dse.walls.judge import optimistic

__all__ = ["Viewed", "ceilings", "mean_share", "question", "searched_columns", "views"]

# What a report says beside the front: its runners-up, and how the best does under other loads.
CONTENDERS = 12
_UPPER_BOUND = re.compile(r'\s*"?(?P<column>\w+)"?\s*<=?\s*(?P<limit>[-+.\deE]+)\s*')
_OPTIMISTIC = ("tpot_mean_s", "ttft_mean_s", "output_tok_per_s_per_gpu")


@dataclass(frozen=True, slots=True)
class Viewed:
    """Evaluates points, and adds every objective that their metrics and prices allow."""

    evaluator: Evaluate

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """Rows of the evaluator with the columns of `views`."""
        rows = self.evaluator(points.drop(PRICE, strict=False))
        if PRICE not in points.columns:
            return rows.with_columns(views(rows.columns))
        priced = rows.join(points.select("point", PRICE), on="point", how="left")
        return priced.with_columns(views(priced.columns)).drop(PRICE)


def views(columns: list[str]) -> list[pl.Expr]:
    """The objectives that can be read from `columns` and are not among them."""
    parts = [OBJECTIVES[kind]() for kind in OBJECTIVES]
    return [
        part.view()
        for part in parts
        if part.column not in columns and set(part.needs) <= set(columns)
    ]


def question(
    study: Study,
    judged: Judged,
    evaluator: Evaluator,
    on_round: Callable[[Round], None] | None,
) -> Question:
    """The study's question in the search's words."""
    search = study.search
    return Question(
        objectives=study.parts,
        feasible=_feasible(study),
        hopeless=_hopeless(study),
        bounds=_bounds(study, judged, evaluator),
        tolerance=search.tolerance,
        round_size=search.round,
        axes=tuple(searched_columns(judged.survivors)),
        budget=search.most,
        contenders=CONTENDERS if search.most is None else 0,
        seed=0,
        on_round=on_round,
    )


def searched_columns(survivors: pl.DataFrame) -> list[str]:
    """Columns that differ between survivors: what a sampler may vary."""
    named = {"point", "structure", "branch", "context", "concurrency", PRICE}
    counted = [name for name in survivors.columns if name not in named]
    return [name for name in counted if survivors[name].n_unique() > 1]


def mean_share(study: Study) -> float:
    """Mean length ÷ the context's own."""
    lengths = study.asked.file.lengths
    return sum(lengths.uniform) / 2.0 if isinstance(lengths, UniformLengths) else 1.0


def ceilings(study: Study, judged: Judged, points: pl.DataFrame) -> dict[int, float]:
    """Requests/s of each point that no schedule exceeds, by `point`."""
    found = points.select("point", "n_gpus").join(_hardware(study, judged)(points), on="point")
    rate = pl.col("goodput_req_per_s_per_gpu") * pl.col("n_gpus")
    return dict(found.select("point", rate).iter_rows())


def _bounds(study: Study, judged: Judged, evaluator: Evaluator) -> tuple[Bound, ...]:
    """Peak rates first, then the simulator's own times; the latter need a load, so a study whose
    load is searched has the first alone.
    """
    hardware = Bound(rung="hardware", of=_hardware(study, judged))
    if study.is_load_searched:
        return (hardware,)
    engine = EngineBound(
        deployments=evaluator.deployments,
        workload_of=study.workload_of,
        replicates=evaluator.replicates,
        tier=evaluator.tier,
        slo=study.slo,
    )
    return (hardware, *engine.bounds())


def _feasible(study: Study) -> pl.Expr | None:
    tests = [where.expr() for where in study.constraints]
    if study.slo is not None:
        tests.append(pl.col("slo_attainment") >= study.slo.attainment)
    return pl.all_horizontal(tests) if tests else None


def _hopeless(study: Study) -> pl.Expr | None:
    """Constraints of the form `x <= number` on objectives that are better when smaller: a bound
    above the number proves that no simulation meets it; so does too low a bound of attainment.
    """
    tests = [test for where in study.constraints if (test := _unmeetable(where)) is not None]
    if study.slo is not None and not study.is_load_searched:
        tests.append(pl.col("slo_attainment") < study.slo.attainment)
    return pl.any_horizontal(tests) if tests else None


def _unmeetable(where: Where) -> pl.Expr | None:
    match = _UPPER_BOUND.fullmatch(where.sql)
    columns = {part.column: part for part in OBJECTIVES.values() if part.direction == "min"}
    if match is None or match["column"] not in columns:
        return None
    part = columns[match["column"]]()
    return part.view() > float(match["limit"])


def _hardware(study: Study, judged: Judged) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Optimistic metrics at peak rates, from the facts of each point's structure."""
    added = question_of(study)

    def of(points: pl.DataFrame) -> pl.DataFrame:
        own = points.lazy().drop(shared_names(points, judged.facts))
        known = own.join(judged.facts.lazy(), on="structure", how="left")
        found = optimistic(known.with_columns(**added))
        goodput = pl.col("output_tok_per_s_per_gpu") / (pl.col("osl_tokens") * mean_share(study))
        named = goodput.alias("goodput_req_per_s_per_gpu")
        return found.select("point", *_OPTIMISTIC, named).collect()

    return of
