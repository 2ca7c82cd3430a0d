"""Products of axes: pruned as judged point by point, and as frames are judged."""

import numpy as np
import polars as pl
import pytest

from dse.base.errors import DseError
from dse.serving.layout import Layout
from dse.serving.slo import SLO
from dse.walls.block import SURVIVOR, Load, brute_force, matrix_of, prune, walls_of
from dse.walls.facts import facts_of
from dse.walls.judge import facts_frame, judge, question_columns
from tests import worlds

LAYOUTS = (Layout(), Layout(tp=2), Layout(tp=4, pp=2), Layout(dp=2, ep=2), Layout(tp=8))
LOAD = Load(
    isl_tokens=(16, 1000, 30_000, 200_000),
    osl_tokens=(16, 200, 1000, 1000),
    batch=(1, 2, 8, 64, 512, 4096),
    slo=SLO(tpot_s=0.03, ttft_s=0.3),
)


@pytest.fixture(scope="module")
def facts():
    models = (worlds.llama_8b(), worlds.deepseek_v3(), worlds.mixture())
    return [
        facts_of(worlds.deployment(model, layout=layout, precision=worlds.FP8_BLOCK))
        for model in models
        for layout in LAYOUTS
        if model.is_moe or layout.dp == 1
    ]


def test_pruning_equals_brute_force(facts):
    matrix, places = matrix_of(facts)
    codes = np.concatenate([found for _, found in brute_force(matrix, places, LOAD)])
    pruned = prune(matrix, places, LOAD)
    survive = np.arange(len(LOAD.batch)) < pruned.cuts[:, :, None]
    assert np.array_equal(survive, codes == SURVIVOR)
    assert 0 < pruned.n_survivors < pruned.n_points
    kinds = [wall.kind for wall in walls_of(LOAD)]
    assert pruned.killed == {kind: int((codes == code).sum()) for code, kind in enumerate(kinds)}
    assert pruned.n_survivors + sum(pruned.killed.values()) == pruned.n_points == codes.size


def test_threads_change_nothing(facts):
    matrix, places = matrix_of(facts)
    one, two = (prune(matrix, places, LOAD, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.cuts, two.cuts)


def test_frames_and_blocks_agree(facts):
    matrix, places = matrix_of(facts)
    codes = np.concatenate([found for _, found in brute_force(matrix, places, LOAD)])
    kinds = [wall.kind for wall in walls_of(LOAD)]
    frame = facts_frame(range(len(facts)), facts, on="structure").lazy()
    contexts = pl.LazyFrame({"isl_tokens": LOAD.isl_tokens, "osl_tokens": LOAD.osl_tokens})
    points = frame.join(contexts.with_row_index("context"), how="cross")
    points = points.join(pl.LazyFrame({"batch": LOAD.batch}), how="cross")
    points = points.with_columns(concurrency=pl.col("batch") * pl.col("n_replicas"))
    points = points.with_columns(**question_columns(slo=LOAD.slo, requests_per_concurrency=10))
    judged = judge(points).sort("structure", "context", "batch").collect()
    expected = [None if code == SURVIVOR else kinds[code] for code in codes.ravel()]
    assert judged["killed_by"].to_list() == expected


def test_batches_must_rise():
    with pytest.raises(DseError, match="must rise"):
        Load(isl_tokens=(1,), osl_tokens=(1,), batch=(2, 1), slo=SLO())
