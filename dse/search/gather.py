"""Results and bounds as objective values: views, means over replicates, ties, self-checks."""

from collections.abc import Sequence

import polars as pl

from dse.pareto import Objective, front
from dse.search.dominance import ROUNDING
from dse.search.question import Bound, Question, Violation

_LABELS = ("point", "replicate", "status", "error")


def simulated(rows: pl.DataFrame, survivors: pl.DataFrame, question: Question) -> pl.DataFrame:
    """One row a point: the survivor's columns, `status`, mean metrics and objectives, `feasible`.

    A point is `ok` if every replicate is; otherwise its status and error are those of its first
    failure, and its numbers are null.
    """
    viewed = _viewed(rows, survivors, question.objectives)
    columns = [each.column for each in question.objectives]
    metrics = [
        name
        for name, dtype in viewed.schema.items()
        if name not in (*_LABELS, *survivors.columns) and dtype.is_numeric()
    ]
    is_ok = (pl.col("status") == "ok").all()
    failure = pl.col("status") != "ok"
    means = viewed.group_by("point", maintain_order=True).agg(
        pl.col("status").filter(failure).first().fill_null("ok"),
        pl.col("error").filter(failure).first(),
        pl.len().alias("n_replicates"),
        *[pl.when(is_ok).then(pl.col(name).mean()).alias(name) for name in metrics],
        *[pl.when(is_ok).then(pl.col(name).min()).alias(f"{name}_low") for name in columns],
        *[pl.when(is_ok).then(pl.col(name).max()).alias(f"{name}_high") for name in columns],
    )
    joined = survivors.join(means, on="point", how="inner", maintain_order="right")
    feasible = pl.col("status") == "ok"
    # Where nothing was simulated there are no metrics that a constraint could read.
    if question.feasible is not None and not joined.is_empty():
        feasible &= question.feasible.fill_null(value=False)
    return joined.with_columns(feasible=feasible)


def optimistic(bound: Bound, survivors: pl.DataFrame, question: Question) -> pl.DataFrame:
    """`point`, the objectives' bounds (means over replicates; null: not bounded) and `hopeless`."""
    columns = [each.column for each in question.objectives]
    if survivors.is_empty():  # they may lack the facts that a bound reads
        unbounded = [pl.lit(None, pl.Float64).alias(name) for name in columns]
        return survivors.select("point", *unbounded, hopeless=pl.lit(value=False))
    asked = [] if question.hopeless is None else question.hopeless.meta.root_names()
    read = list(dict.fromkeys([*columns, *asked]))
    viewed = _viewed(bound.of(survivors), survivors, question.objectives, asked)
    unknown = [pl.lit(None, pl.Float64).alias(n) for n in read if n not in viewed.columns]
    means = viewed.with_columns(unknown).select("point", *read)
    if not means["point"].is_unique().all():
        # What is not known of one replicate is not known of their mean: others may be worse.
        whole = [(pl.col(name).null_count() == 0, pl.col(name).mean()) for name in read]
        grouped = means.group_by("point", maintain_order=True)
        means = grouped.agg(pl.when(known).then(mean) for known, mean in whole)
    hopeless = pl.lit(value=False)
    if question.hopeless is not None:
        hopeless = question.hopeless.fill_null(value=False)
    return means.select("point", *columns, hopeless=hopeless)


def corners(bound: Bound, survivors: pl.DataFrame, question: Question) -> pl.DataFrame:
    """`point` and the objectives' bounds at each corner of its curve, in the survivors' order."""
    assert bound.curve is not None
    columns = [each.column for each in question.objectives]
    found = _viewed(bound.curve(survivors), survivors, question.objectives)
    return found.select("point", *columns)


def violations(
    rows: pl.DataFrame, bound: Bound, survivors: pl.DataFrame, question: Question
) -> list[Violation]:
    """The results better than their own bound, replicate by replicate where it knows them."""
    columns = [each.column for each in question.objectives]
    limits = _viewed((bound.checked or bound.of)(survivors), survivors, question.objectives)
    keys = ["point", "replicate"] if "replicate" in limits.columns else ["point"]
    results = _viewed(rows, survivors, question.objectives).filter(pl.col("status") == "ok")
    both = results.join(limits.select(*keys, *columns), on=keys, suffix="_bound")
    found = []
    for objective in question.objectives:
        value, limit = pl.col(objective.column), pl.col(f"{objective.column}_bound")
        excess = value - limit if objective.direction == "max" else limit - value
        # An undefined result, as the TPOT of answers of one token, beats no bound.
        broken = both.filter(excess.is_not_nan() & (excess > ROUNDING * limit.abs()))
        found += [
            Violation(
                point=row["point"],
                rung=bound.rung,
                objective=objective.column,
                result=row[objective.column],
                bound=row[f"{objective.column}_bound"],
            )
            for row in broken.iter_rows(named=True)
        ]
    return found


def judged(frame: pl.DataFrame, objectives: Sequence[Objective]) -> pl.DataFrame:
    """`frame` with `on_front`, `front_rank` (both among feasible rows) and `is_tie`."""
    kinds = pl.Series("feasible", [], dtype=pl.Boolean)
    able = front(frame.filter(frame.get_column("feasible", default=kinds)), objectives)
    marks = able.select("point", "on_front", "front_rank")
    joined = frame.join(marks, on="point", how="left", maintain_order="left")
    marked = joined.with_columns(pl.col("on_front").fill_null(value=False))
    return marked.with_columns(is_tie=pl.col("point").is_in(_ties(marked, objectives)))


def best_first(frame: pl.DataFrame, objectives: Sequence[Objective]) -> pl.DataFrame:
    """The front's rows, best first by the first objective, then the next, then by `point`."""
    columns = [each.column for each in objectives]
    worst_first = [each.direction == "max" for each in objectives]
    rows = frame.filter("on_front")
    return rows.sort([*columns, "point"], descending=[*worst_first, False])


def tightness(
    frame: pl.DataFrame, limits: pl.DataFrame, objectives: Sequence[Objective]
) -> dict[str, tuple[float, float]]:
    """Per objective the median and 95th percentile of how far results stay behind their bounds."""
    both = frame.filter(pl.col("status") == "ok").join(limits, on="point", suffix="_bound")
    found = {}
    for objective in objectives:
        value, limit = pl.col(objective.column), pl.col(f"{objective.column}_bound")
        ratio = limit / value if objective.direction == "max" else value / limit
        gaps = both.select((ratio - 1.0).alias("gap"))["gap"].drop_nulls().drop_nans()
        if gaps.len():
            median, high = gaps.quantile(0.5, "linear"), gaps.quantile(0.95, "linear")
            found[objective.column] = (float(median or 0.0), float(high or 0.0))
    return found


def _viewed(
    rows: pl.DataFrame,
    survivors: pl.DataFrame,
    objectives: Sequence[Objective],
    also: Sequence[str] = (),
) -> pl.DataFrame:
    """Rows with every objective's value, and columns of the survivors that they or `also` name;
    what an objective needs and nobody gives is null.
    """
    needed = {name for each in objectives for name in each.needs}
    wanted = (needed | set(also)) - {"point", *rows.columns}
    beside = [name for name in survivors.columns if name in wanted]
    joined = rows
    if beside:
        facts = survivors.select("point", *beside)
        joined = rows.join(facts, on="point", how="left", maintain_order="left")
    absent = sorted(needed - set(joined.columns))
    filled = joined.with_columns(pl.lit(None, pl.Float64).alias(name) for name in absent)
    return filled.with_columns(each.view() for each in objectives)


def _ties(frame: pl.DataFrame, objectives: Sequence[Objective]) -> list[int]:
    """Members of the front whose replicates' ranges overlap another member's in every objective."""
    members = frame.filter("on_front")
    columns = ["point", *(f"{o.column}_{end}" for o in objectives for end in ("low", "high"))]
    pairs = members.select(columns).join(members.select(columns), how="cross", suffix="_other")
    overlap = pl.all_horizontal(
        (pl.col(f"{o.column}_low") <= pl.col(f"{o.column}_high_other"))
        & (pl.col(f"{o.column}_low_other") <= pl.col(f"{o.column}_high"))
        for o in objectives
    )
    met = pairs.filter((pl.col("point") != pl.col("point_other")) & overlap)
    return met["point"].unique().to_list()
