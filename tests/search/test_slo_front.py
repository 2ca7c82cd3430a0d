"""Under an SLO that many points miss the front is that of all simulations."""

from dataclasses import replace

import polars as pl
import pytest

from dse.search import METHODS, Question
from dse.search.engine_bound import EngineBound
from dse.serving.arrivals import ClosedLoop
from dse.serving.engine import EngineHost
from dse.serving.layout import Layout
from dse.serving.lengths import Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import compile_run, simulate
from tests import worlds
from tests.search.worlds import TWO

HOST = EngineHost(step_s=2e-4, request_s=5e-5, prefill_token_s=0.0, arrival_s=1e-3)
SLO_KEPT = SLO(ttft_s=0.02, tpot_s=8e-4, attainment=0.9)


def structures():
    """Together, in a pipeline and apart."""
    by = worlds.engine(host=HOST, max_num_batched_tokens=256)
    layouts = [Layout(), Layout(pp=2), Layout(dp=2, ep=2), Layout(dp=2, ep=2, pp=2)]
    found = [worlds.deployment(worlds.mixture(), layout=each, by=by) for each in layouts]
    decode = replace(found[0].pools[0], role="decode")
    for n_prefill in (1, 2):
        prefill = replace(decode, role="prefill", n_replicas=n_prefill)
        found.append(replace(found[0], pools=(prefill, decode)))
    return dict(enumerate(found))


def workload_of(row):
    return Workload(
        arrivals=ClosedLoop(concurrency=row["concurrency"]),
        n_requests=10 * row["concurrency"],
        isl=Uniform(low_tokens=40, high_tokens=200),
        osl=Uniform(low_tokens=20, high_tokens=40),
    )


@pytest.fixture(scope="module")
def asked():
    """Survivors, every result, and the rungs."""
    known = structures()
    pairs = [(structure, 2**k) for structure in known for k in range(7)]
    survivors = pl.DataFrame(
        [(place, *pair) for place, pair in enumerate(pairs)],
        schema={"point": pl.UInt64, "structure": pl.UInt64, "concurrency": pl.Int64},
        orient="row",
    )
    rows = []
    for row in survivors.iter_rows(named=True):
        deployment = known[row["structure"]]
        spec = compile_run(deployment, "roofline")
        found = simulate(deployment, workload_of(row), 0, spec=spec)
        kept = {
            "point": row["point"],
            "replicate": 0,
            "status": "ok",
            "error": None,
            "output_tok_per_s_per_gpu": found.output_tok_per_s / found.n_gpus,
            "tpot_mean_s": found.tpot.mean,
            "slo_attainment": found.slo_attainment(SLO_KEPT),
        }
        rows.append(kept)
    types = {"point": pl.UInt64, "replicate": pl.Int32, "error": pl.String}
    results = pl.DataFrame(rows, schema_overrides=types)
    bounds = EngineBound(
        deployments=known, workload_of=workload_of, tier="roofline", slo=SLO_KEPT
    ).bounds()
    return survivors, results, bounds


def test_the_front_is_that_of_all_simulations(asked):
    survivors, results, bounds = asked
    simulated = []

    def evaluate(points):
        simulated.extend(points["point"].to_list())
        return points.select("point").join(results, on="point", maintain_order="left")

    question = Question(
        objectives=TWO,
        feasible=pl.col("slo_attainment") >= SLO_KEPT.attainment,
        hopeless=pl.col("slo_attainment") < SLO_KEPT.attainment,
        bounds=bounds,
        tolerance=0.0,
    )
    every = METHODS["exhaustive"](survivors, evaluate, question)
    n_feasible = every.frame["feasible"].sum()
    assert survivors.height // 3 < n_feasible < 2 * survivors.height // 3
    simulated.clear()
    found = METHODS["bound"](survivors, evaluate, question)
    assert set(found.front["point"]) == set(every.front["point"])
    assert found.certificate.valid
    assert len(simulated) < survivors.height // 2


def test_a_point_that_keeps_the_slo_is_never_hopeless(asked):
    survivors, results, bounds = asked
    for bound in bounds:
        both = bound.of(survivors).join(results, on="point", suffix="_found")
        beaten = both.filter(pl.col("slo_attainment_found") > pl.col("slo_attainment") + 1e-9)
        assert beaten.is_empty()
    last = bounds[-1].of(survivors).join(results, on="point", suffix="_found")
    failing = last.filter(pl.col("slo_attainment_found") < SLO_KEPT.attainment)
    proved = failing.filter(pl.col("slo_attainment") < SLO_KEPT.attainment)
    assert proved.height > failing.height // 2
