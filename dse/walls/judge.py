"""Judge frames: every wall's demand and limit as columns, and which wall kills a point first."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from dse.serving.slo import SLO
from dse.walls.facts import NO_LIMIT, Facts
from dse.walls.floors import Columns, prompt_s, single_step_s, tokens_per_s
from dse.walls.kinds import WALLS, Wall

ORDER = ("context", "domain", "hbm", "kv_capacity", "tpot_floor", "ttft_floor")
LEGALITY = "legality"
BOUNDS = ("tpot_mean_s", "ttft_mean_s", "output_tok_per_s_per_gpu")


class FrameColumns(dict[str, Any]):
    """`c["x"]` is a column as floats, nulls as NaN."""

    def __init__(self, frame: pl.DataFrame) -> None:
        super().__init__()
        self._frame = frame

    def __missing__(self, name: str) -> Any:
        self[name] = self._frame[name].cast(pl.Float64).to_numpy()
        return self[name]


def standard_walls() -> tuple[Wall, ...]:
    """Every wall of the family, in the order in which they are asked: what concerns structure,
    then lengths, then load.
    """
    rest = [kind for kind in WALLS if kind not in ORDER]
    makers: list[Callable[[], Wall]] = [WALLS[kind] for kind in (*ORDER, *rest)]
    return tuple(make() for make in makers)


def facts_frame(keys: Sequence[Any], facts: Sequence[Facts | None], *, on: str) -> pl.DataFrame:
    """One row a deployment: its key in column `on` and its facts, null where it is illegal."""
    names = sorted({name for found in facts if found is not None for name in found})
    columns = {
        name: pl.Series(name, [found and found[name] for found in facts], dtype=pl.Float64)
        for name in names
    }
    return pl.DataFrame({on: keys, **columns})


def question_columns(
    *,
    slo: SLO | None = None,
    low: float = 1.0,
    high: float = 1.0,
    shared_tokens: float = 0.0,
    requests_per_concurrency: float | None = None,
    n_requests: float | None = None,
) -> dict[str, pl.Expr]:
    """What a study adds to every point: the lengths' bounds as factors of `isl_tokens` and
    `osl_tokens`, the prefix that requests share, the SLO, and how many requests a run has.
    """
    isl, osl = pl.col("isl_tokens"), pl.col("osl_tokens")
    found = {
        "isl_low_tokens": (isl * low).floor().clip(lower_bound=1),
        "osl_low_tokens": (osl * low).floor().clip(lower_bound=1),
        "osl_high_tokens": (osl * high).ceil(),
        "shared_tokens": pl.lit(shared_tokens),
    }
    if slo is not None:
        bounds = {"slo_tpot_s": slo.tpot_s, "slo_ttft_s": slo.ttft_s}
        found |= {name: pl.lit(value) for name, value in bounds.items() if value is not None}
        found["slo_attainment"] = pl.lit(slo.attainment)
    if requests_per_concurrency is not None:
        found["n_requests"] = requests_per_concurrency * pl.col("concurrency")
    elif n_requests is not None:
        found["n_requests"] = pl.lit(float(n_requests))
    return found


def judge(frame: pl.LazyFrame, walls: Sequence[Wall] | None = None) -> pl.LazyFrame:
    """Add `<wall>_demand_<unit>`, `<wall>_limit_<unit>` and `killed_by` (null: a survivor).

    The frame has the facts, `isl_low_tokens`, `osl_low_tokens`, `osl_high_tokens`, `shared_tokens`
    and what each wall needs; walls whose columns it lacks do not apply. A demand or limit that is
    null or NaN kills: a missing fact is not feasibility. Where `illegal` is set, the point is
    killed by `legality` before any wall.
    """
    schema = frame.collect_schema()
    chosen = applicable(set(schema.names()), walls)
    columns = [name for wall in chosen for name in (wall.demand_column, wall.limit_column)]
    added = dict.fromkeys(columns, pl.Float64()) | {"killed_by": pl.String()}
    killers = pl.Series([*(wall.kind for wall in chosen), LEGALITY, None], dtype=pl.String)

    def work(batch: pl.DataFrame) -> pl.DataFrame:
        c = FrameColumns(_with_in_flight(batch))
        found: dict[str, Any] = {}
        killed = np.full(batch.height, len(killers) - 1)
        for code in reversed(range(len(chosen))):
            demand, limit = chosen[code].demand(c), chosen[code].limit(c)
            found |= {chosen[code].demand_column: demand, chosen[code].limit_column: limit}
            killed[~(demand <= limit)] = code
        if "illegal" in batch.columns:
            killed[batch["illegal"].is_not_null().to_numpy()] = len(killers) - 2
        series = [pl.Series(name, found[name], dtype=pl.Float64) for name in columns]
        return batch.with_columns(*series, killers.gather(killed).alias("killed_by"))

    return _mapped(frame, work, dict(schema) | added)


def applicable(names: set[str], walls: Sequence[Wall] | None = None) -> tuple[Wall, ...]:
    """The walls whose columns are among `names`."""
    chosen = standard_walls() if walls is None else walls
    return tuple(wall for wall in chosen if set(wall.needs) <= names)


def optimistic(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the optimistic vector of each point at peak rates, under the names of the metrics it
    bounds: `tpot_mean_s` and `ttft_mean_s` from below, `output_tok_per_s_per_gpu` from above.
    """

    def work(batch: pl.DataFrame) -> pl.DataFrame:
        values = optimistic_vector(FrameColumns(_with_in_flight(batch)))
        return batch.with_columns(pl.Series(name, values[name]) for name in BOUNDS)

    return _mapped(frame, work, dict(frame.collect_schema()) | dict.fromkeys(BOUNDS, pl.Float64()))


def optimistic_vector(c: Columns) -> dict[str, Any]:
    """The optimistic vector by metric; see `optimistic`."""
    values = (
        single_step_s(c) / c["tokens_per_step_max"],
        prompt_s(c),
        tokens_per_s(c) / c["n_gpus"],
    )
    return dict(zip(BOUNDS, values, strict=True))


def _with_in_flight(batch: pl.DataFrame) -> pl.DataFrame:
    """Add `in_flight`: the concurrency of a closed loop, no limit elsewhere."""
    limit = pl.col("concurrency") if "concurrency" in batch.columns else pl.lit(NO_LIMIT)
    return batch.with_columns(limit.cast(pl.Float64).alias("in_flight"))


def _mapped(
    frame: pl.LazyFrame, work: Callable[[pl.DataFrame], pl.DataFrame], schema: dict[str, Any]
) -> pl.LazyFrame:
    """Apply `work` to batches of rows, in bounded memory where the plan streams."""
    return frame.map_batches(
        work,
        schema=pl.Schema(schema),
        predicate_pushdown=False,
        projection_pushdown=False,
        slice_pushdown=False,
        streamable=True,
    )
