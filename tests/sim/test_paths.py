"""The fast path equals the reference on random worlds of every mechanism that it serves."""

import random
from dataclasses import replace
from typing import Any

import pytest

from dse.serving.arrivals import AllAtOnce, ClosedLoop, ConstantRate, Gamma, Poisson
from dse.serving.deployment import Deployment, SpeculativeDecoding
from dse.serving.layout import Layout
from dse.serving.lengths import Constant, Lognormal, Uniform
from dse.serving.routers import LeastLoaded, PrefixAware
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst, Static
from dse.serving.workload import Sessions, Workload
from dse.sim import RunSpec
from dse.sim.fast import run_fast, unsupported
from dse.sim.reference import run_reference
from dse.sim.simulate import _accepted
from dse.sim.traffic import realised_requests
from tests import worlds as models
from tests.sim.worlds import deployment, host, priced, same, trace

LAYOUTS: tuple[dict[str, int], ...] = (
    {}, {"tp": 2}, {"dp": 2}, {"dp": 2, "ep": 2}, {"pp": 2}, {"pp": 2, "dp": 2},
)  # fmt: skip
N_WORLDS = 240


def random_spec(pick: random.Random) -> RunSpec:
    model = pick.choice(
        [models.tiny, models.mixture, models.sliding_hybrid, models.linear_hybrid]
    )()
    uniform = model.name in {"tiny", "mixture"}
    schedulers = [
        ChunkedPrefill(
            policy=pick.choice(["fcfs", "shortest"]), reserve_prompt=pick.random() < 0.5
        ),
        PrefillFirst(),
        Static(),
    ]
    changes: dict[str, Any] = {}
    if pick.random() < 0.25:
        n_draft = pick.randint(1, 3)
        changes["speculative"] = SpeculativeDecoding(
            method="draft", n_draft=n_draft, acceptance=0.7
        )
    if pick.random() < 0.3:
        changes["router"] = LeastLoaded()
    spec = deployment(
        model=model,
        blocks=pick.choice([20, 40, 100]) if uniform else None,
        scheduler=pick.choice(schedulers),
        layout=Layout(**pick.choice(LAYOUTS)),
        n_replicas=pick.choice([1, 1, 2]),
        changes=changes,
        max_num_seqs=pick.choice([1, 4, 16]),
        max_num_batched_tokens=pick.choice([8, 32, 512]),
        prefix_caching=pick.random() < 0.7,
        host=host(
            pick.choice([0.0, 1e-4]),
            request_s=pick.choice([0.0, 1e-6]),
            overlapped=pick.random() < 0.5,
            arrival_s=pick.choice([0.0, 1e-3]),
        ),
    )
    return priced(apart(spec, pick) if pick.random() < 0.3 else spec)


def apart(found: Deployment, pick: random.Random) -> Deployment:
    """The same prefilling only, and a second pool that decodes."""
    pool = found.pools[0]
    layout = Layout(**pick.choice(({}, {"tp": 2}, {"dp": 2}, {"pp": 2})))
    decode = replace(pool, role="decode", layout=layout, n_replicas=pick.choice([1, 2, 3]))
    link = pick.choice([None, pool.fabric.scale_up])
    return replace(found, pools=(replace(pool, role="prefill"), decode), interconnect=link)


def random_workload(pick: random.Random) -> Workload:
    arrivals = pick.choice(
        [
            ClosedLoop(concurrency=pick.choice([1, 3, 20])),
            Poisson(req_per_s=pick.choice([10.0, 1e3, 1e5])),
            Gamma(req_per_s=1e3, cv=2.0),
            ConstantRate(req_per_s=2e3),
            AllAtOnce(),
        ]
    )
    more: dict[str, Any] = {}
    if pick.random() < 0.5:
        more["shared_prefix_tokens"] = pick.choice([3, 16, 30])
        more["n_prefixes"] = pick.choice([1, 3])
    if pick.random() < 0.3:
        turns = Uniform(low_tokens=1, high_tokens=4)
        more["sessions"] = Sessions(turns=turns, think_s=pick.choice([0.0, 0.01]))
    return Workload(
        arrivals=arrivals,
        n_requests=pick.choice([5, 40]),
        isl=Uniform(low_tokens=1, high_tokens=pick.choice([3, 30, 60])),
        osl=pick.choice(
            [
                Constant(n_tokens=1),
                Constant(n_tokens=20),
                Lognormal(mean_tokens=20, cv=1.0, max_tokens=60),
            ]
        ),
        **more,
    )


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("group", range(12))
def test_fast_equals_reference(group: int) -> None:
    served = 0
    for number in range(group, N_WORLDS, 12):
        pick = random.Random(number)
        spec, workload = random_spec(pick), random_workload(pick)
        requests = realised_requests(workload, number)
        if not any(map(spec.admits, requests.isl_tokens, requests.osl_tokens)):
            continue
        requests, _ = _accepted(spec, requests)
        assert unsupported(spec, requests) in {"", "turns of a recorded session may overlap"}
        if not unsupported(spec, requests):
            same(run_reference(spec, requests), run_fast(spec, requests))
            served += 1
    assert served >= N_WORLDS // 12 - 4


def test_what_the_fast_path_leaves_to_the_reference_is_named() -> None:
    requests = realised_requests(trace([(0.0, 4, 2)]), 0)
    aware = deployment(n_replicas=2, changes={"router": PrefixAware()})
    assert unsupported(priced(aware), requests) == "the router looks into the caches"
    assert not unsupported(priced(deployment()), requests)
