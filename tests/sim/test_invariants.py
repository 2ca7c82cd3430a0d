"""What holds in every run: nothing is lost, blocks add up, no step beats its floor, more is no
less."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dse.serving.arrivals import ClosedLoop, Poisson
from dse.serving.deployment import Deployment
from dse.serving.layout import Layout
from dse.serving.lengths import Lognormal, Uniform
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst, Scheduler, Static
from dse.serving.workload import Workload
from dse.sim.fast import run_fast
from dse.sim.kv import BlockPool
from dse.sim.log import Log
from dse.sim.reference import run_reference
from dse.sim.simulate import simulate
from dse.sim.traffic import realised_requests
from tests import worlds as models
from tests.sim.worlds import deployment, host, priced

pytestmark = pytest.mark.usefixtures("compiled")

TIGHT = Workload(
    arrivals=ClosedLoop(concurrency=12),
    n_requests=60,
    isl=Uniform(low_tokens=4, high_tokens=40),
    osl=Lognormal(mean_tokens=20, cv=1.0, max_tokens=60),
    shared_prefix_tokens=12,
)
SCHEDULERS = [ChunkedPrefill(), PrefillFirst(), Static()]


def tight(scheduler: Scheduler, **engine: Any) -> Deployment:
    return deployment(
        blocks=60, scheduler=scheduler, max_num_seqs=16, max_num_batched_tokens=32, **engine
    )


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_token_comes_out_once(scheduler: Scheduler) -> None:
    spec = priced(tight(scheduler))
    requests = realised_requests(TIGHT, 3)
    for run in (run_reference, run_fast):
        outcome = run(spec, requests)
        total = outcome.totals[0]
        gaps = int(total.gaps.sum())
        assert gaps == int((requests.osl_tokens - 1).sum())
        assert not np.isnan(outcome.finish_s).any()
        assert (outcome.first_token_s <= outcome.finish_s).all()
        assert (outcome.admitted_s >= outcome.asked_s).all()


def test_preemption_happens_and_ends() -> None:
    outcome = run_fast(
        priced(tight(ChunkedPrefill(reserve_prompt=False))), realised_requests(TIGHT, 3)
    )
    assert outcome.n_preemptions.sum() > 10
    assert outcome.totals[0].kv_peak <= 60


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_free_and_used_blocks_are_all(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = 0
    plain = BlockPool.grow

    def grow(pool: BlockPool, request: Any, tokens: int) -> bool:
        nonlocal checked
        done = plain(pool, request, tokens)
        held = {b for b, n in pool.n_holders.items() if n > 0}
        assert held.isdisjoint(pool.free)
        assert len(held) + len(pool.free) + pool.n_units - pool.n_fresh == pool.n_units
        assert pool.used_units == len(held)
        checked += 1
        return done

    monkeypatch.setattr(BlockPool, "grow", grow)
    run_reference(priced(tight(scheduler)), realised_requests(TIGHT, 3))
    assert checked > 100


def test_repeatable_to_the_last_bit() -> None:
    found = priced(tight(ChunkedPrefill()))
    runs = [simulate(None, TIGHT, 3, spec=found, path="fast") for _ in range(2)]  # type: ignore[arg-type]
    other = simulate(None, TIGHT, 3, spec=found, path="reference")  # type: ignore[arg-type]
    assert runs[0] == runs[1] == other
    assert runs[0].to_row() == other.to_row()


def test_no_step_beats_the_floor_of_its_batch() -> None:
    """A decode step reads the weights once and the KV of its requests; a roofline is no faster."""
    found = deployment(model=models.llama_8b(), host=host(0.0), max_num_seqs=64)
    log = Log()
    workload = replace(TIGHT, n_requests=30)
    simulate(found, workload, 0, tier="roofline", log=log)
    pool = found.pools[0]
    active = found.model.active_parameters() - found.model.vocab_size * found.model.d_model
    floor = 2.0 * active / pool.gpu.hbm_bytes_per_s
    steps = [event for event in log.events if event.kind == "step"]
    assert len(steps) > 50
    for event in steps:
        compute = 2.0 * event.n_tokens * active / pool.gpu.peak_flop_per_s["bf16"]
        assert event.end_s - event.time_s >= max(floor, 0.9 * compute) * (1 - 1e-9)


@pytest.mark.parametrize(
    "more", [{"hbm_bytes": 120e9}, {"hbm_bytes_per_s": 2e12}, {"peak_flop_per_s": {"bf16": 3e14}}]
)
def test_more_hardware_never_serves_less(more: dict[str, Any]) -> None:
    """Scheduling anomalies may cost a little; 1% is allowed."""
    workload = Workload(
        arrivals=Poisson(req_per_s=20.0),
        n_requests=300,
        isl=Uniform(low_tokens=100, high_tokens=2000),
        osl=Lognormal(mean_tokens=100, cv=1.0, max_tokens=1000),
    )
    rates = []
    for gpu in (models.gpu(), models.gpu(**more)):
        by = models.engine(host=host(1e-3), max_num_seqs=64)
        found = models.deployment(models.llama_8b(), on=gpu, by=by)
        rates.append(simulate(found, workload, 0, tier="roofline").output_tok_per_s)
    assert rates[1] >= 0.99 * rates[0]


def test_equal_replicas_are_simulated_once() -> None:
    """Two replicas behind round robin at twice the concurrency serve exactly twice as much."""
    one = deployment(layout=Layout())
    two = replace(one, pools=(replace(one.pools[0], n_replicas=2),))
    load = replace(TIGHT, arrivals=ClosedLoop(concurrency=8), n_requests=40)
    double = replace(TIGHT, arrivals=ClosedLoop(concurrency=16), n_requests=80)
    alone = simulate(one, load, 0, tier="roofline")
    both = simulate(two, double, 0, tier="roofline")
    assert both.n_requests == 80
    assert both.n_gpus == 2
    assert both.output_tok_per_s == pytest.approx(2 * alone.output_tok_per_s, rel=0.2)
