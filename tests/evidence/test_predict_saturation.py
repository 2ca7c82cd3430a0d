"""One call for any deployment and workload, beside the simulator."""

from dataclasses import replace

import pytest

from dse.evidence.predict_saturation import predict
from dse.serving.arrivals import AllAtOnce, ClosedLoop, Poisson
from dse.serving.lengths import Constant
from dse.serving.workload import Workload
from dse.sim import simulate
from tests import worlds

DEPLOYMENT = worlds.deployment(worlds.llama_8b())


def workload(arrivals, n=200):
    return Workload(
        arrivals=arrivals,
        n_requests=n,
        isl=Constant(n_tokens=512),
        osl=Constant(n_tokens=128),
    )


def apart():
    pool = DEPLOYMENT.pools[0]
    pools = (replace(pool, role="prefill"), replace(pool, role="decode"))
    return replace(DEPLOYMENT, pools=pools, interconnect=pool.fabric.scale_out)


@pytest.mark.parametrize(
    ("deployment", "arrivals"),
    [
        (DEPLOYMENT, ClosedLoop(concurrency=16)),
        (DEPLOYMENT, AllAtOnce()),
        (apart(), ClosedLoop(concurrency=16)),
    ],
    ids=["closed", "job", "apart"],
)
def test_throughput_and_tpot_beside_the_simulator(deployment, arrivals):
    simulated = simulate(deployment, workload(arrivals), 0)
    found = predict(deployment, workload(arrivals))
    assert float(found.output_tok_per_s) == pytest.approx(simulated.output_tok_per_s, rel=0.1)
    assert float(found.tpot_s) == pytest.approx(simulated.tpot.mean, rel=0.1)


def test_a_rate_below_capacity_is_served():
    simulated = simulate(DEPLOYMENT, workload(Poisson(req_per_s=2.0), 300), 0)
    found = predict(DEPLOYMENT, workload(Poisson(req_per_s=2.0)))
    assert float(found.req_per_s) == pytest.approx(2.0, rel=0.01)
    assert float(found.tpot_s) == pytest.approx(simulated.tpot.mean, rel=0.15)
