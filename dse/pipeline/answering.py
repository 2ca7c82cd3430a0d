"""A judged study → its outcome: searched, simulated where the store has no result, and recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl

from dse.base.errors import StudyError
from dse.evidence.intervals import banded
from dse.pipeline.asking import Viewed, ceilings, mean_share, question, views
from dse.pipeline.details import details
from dse.pipeline.judged import PRICE, Judged
from dse.pipeline.misses import near_misses
from dse.pipeline.probing import RATE, Offered, Probing, likely_rates
from dse.report.drawn import with_words
from dse.report.record import Funnel, Outcome
from dse.run.evaluate import SKETCH, Evaluator
from dse.run.pool import Pool
from dse.run.worker import KEYS
from dse.search import METHODS, Answer, Evaluate, Round, search_each
from dse.store import Store
from dse.study import Study

__all__ = ["Recall", "answer_study", "keys_of"]

Recall = Callable[[Judged, Evaluator], Answer | None]
"""A study's answer from what is remembered; its frame has `point_id` and `physics_id` as well."""

MOST_SKETCHES = 2000
MOST_TOLD = 8


def answer_study(
    study: Study,
    judged: Judged,
    *,
    store: Store,
    pool: Pool,
    on_round: Callable[[Round], None] | None = None,
    told: Callable[[int], None] | None = None,
    retry: tuple[str, ...] = (),
    recall: Recall | None = None,
) -> tuple[Outcome, Answer]:
    """Search the survivors of `judged`, unless `recall` knows, and return what a report needs but
    for its provenance.
    """
    evaluator = Evaluator(
        deployments={i: d for i, s in judged.structures.items() if (d := s.deployment) is not None},
        workload_of=Offered(study) if study.is_load_searched else study.workload_of,
        store=store,
        pool=pool,
        replicates=study.search.seeds,
        slo=study.slo,
        retry=retry,
        told=told,
    )
    found = recall(judged, evaluator) if recall is not None else None
    if found is None:
        asked = question(study, judged, evaluator, on_round)
        search = METHODS[study.search.method]
        evaluate = Viewed(_evaluate(study, judged, evaluator))
        found = search_each(search, judged.survivors, evaluate, asked, study.compare_by)
        found = found if judged.close is None else judged.close(found)
        keys = keys_of(found.frame, judged.survivors, evaluator)
        results = _with_ids(found.frame, keys)
    else:
        results = found.frame
        keys = results.select("point", "point_id", "physics_id", replicate=pl.lit(0, pl.Int32))
    front = found.front.select("point").join(results, on="point", maintain_order="left")
    front = banded(front, evaluator.deployments, (each.column for each in study.parts))
    closer = _with_breakdown(_closer(front, results, study), keys, store)
    outcome = Outcome(
        study=study,
        results=results,
        front=front,
        near_misses=near_misses(study, judged, results),
        funnel=_funnel(judged, evaluator, found),
        details=details(study, judged, closer),
        certificate=found.certificate.record(),
        provenance={},
        notes=_notes(study, judged, found),
        sketches=_sketches(results, keys, store),
    )
    return outcome, found


def _evaluate(study: Study, judged: Judged, evaluator: Evaluator) -> Evaluate:
    """The evaluator at the load of each row, or at the highest rate that keeps the SLO."""
    if not study.is_load_searched:
        return evaluator
    if study.slo is None:
        raise StudyError("load: max_goodput needs an SLO to keep", "give slo: {ttft: …, tpot: …}")
    return Probing(
        evaluator=evaluator,
        attainment=study.slo.attainment,
        ceiling=partial(ceilings, study, judged),
        guess=partial(likely_rates, study, evaluator.deployments),
        mean_share=mean_share(study),
    )


def keys_of(frame: pl.DataFrame, survivors: pl.DataFrame, evaluator: Evaluator) -> pl.DataFrame:
    """The key of each result's first replicate, with its `point`."""
    asked = survivors.join(frame.select("point"), on="point", how="semi").drop(PRICE)
    if RATE in frame.columns and RATE not in asked.columns:
        asked = asked.join(frame.select("point", RATE), on="point", maintain_order="left")
    return evaluator.keyed(asked).filter(pl.col("replicate") == 0).select("point", *KEYS)


def _with_ids(frame: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """Results with `point_id` and every objective that prices and metrics allow."""
    ids = keys.select("point", "point_id", "physics_id")
    named = frame.join(ids, on="point", how="left", maintain_order="left")
    return named.with_columns(views(named.columns))


def _closer(front: pl.DataFrame, results: pl.DataFrame, study: Study) -> pl.DataFrame:
    """The points that the report tells more of: the front's best of each layout, then the best
    feasible one of every other GPU and layout family.
    """
    first = study.parts[0]
    able = results.filter(pl.col("feasible") & pl.col(first.column).is_finite())
    named = with_words(able).select("point", "gpu", "family", first.column)
    ranked = named.sort(first.column, descending=first.direction == "max", maintain_order=True)
    others = ranked.unique(["gpu", "family"], keep="first", maintain_order=True)
    own = with_words(front).unique(["gpu", "layout"], keep="first", maintain_order=True)
    chosen = pl.concat([own.select("point"), others.select("point")])
    points = chosen.unique(maintain_order=True).head(MOST_TOLD)
    return points.join(results, on="point", maintain_order="left")


def _with_breakdown(rows: pl.DataFrame, keys: pl.DataFrame, store: Store) -> pl.DataFrame:
    """`rows` with the `step_breakdown` of each one's first replicate, which has no mean."""
    asked = keys.join(rows.select("point"), on="point", how="semi")
    found = store.results(asked.select(KEYS))
    if "step_breakdown" not in found.columns:
        return rows
    wanted = found.select("point_id", "step_breakdown").unique("point_id")
    return rows.join(wanted, on="point_id", how="left", maintain_order="left")


def _sketches(results: pl.DataFrame, keys: pl.DataFrame, store: Store) -> pl.DataFrame:
    """The stored latencies of the points of the highest output rates."""
    by = "output_tok_per_s_per_gpu"
    if by not in results.columns:
        return pl.DataFrame()
    best = results.filter(pl.col(by).is_finite()).top_k(MOST_SKETCHES, by=by).select("point")
    asked = keys.join(best, on="point", how="semi", maintain_order="left")
    return store.results(asked.select(KEYS).unique(maintain_order=True), SKETCH)


def _funnel(judged: Judged, evaluator: Evaluator, found: Answer) -> Funnel:
    return Funnel(
        n_candidates=judged.n_candidates,
        illegal=dict(judged.illegal.most_common()),
        killed=dict(judged.killed.most_common()),
        screened=dict(judged.screened),
        n_survivors=judged.n_survivors,
        n_simulated=evaluator.n_simulated,
        n_reused=evaluator.n_reused,
        n_dropped_by_bound=found.n_dropped_by_bound,
        n_failed=found.n_failed,
    )


def _notes(study: Study, judged: Judged, found: Answer) -> list[str]:
    notes = []
    if found.n_failed:
        first = found.frame.filter(pl.col("status") != "ok").row(0, named=True)
        notes.append(
            f"{found.n_failed} points failed and are not judged; the first: {first['error']}"
        )
    if judged.n_survivors > judged.survivors.height:
        notes.append(
            f"{judged.n_survivors:,} survivors are more than rows: they were judged and bounded by "
            f"their pools, and the {judged.survivors.height:,} likely best were searched"
        )
    if study.search.method == "optuna":
        notes.append("found by a sampler: nothing is proved about points not simulated")
    return notes
