"""Bad input: a clear error, or a counted refusal as an engine would give; never a hang."""

import math

import pytest

from dse.base.errors import IllegalError, UserError
from dse.serving.arrivals import AllAtOnce, ClosedLoop, ConstantRate, Gamma, Poisson, Trace
from dse.serving.lengths import Constant, Histogram, Lognormal, Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim.simulate import simulate
from tests import worlds as models
from tests.sim.worlds import deployment, free, trace


def test_a_request_beyond_the_context_is_refused_and_counted() -> None:
    spec = free(deployment())
    metrics = simulate(None, trace([(0, 4, 2), (0, 200_000, 2)]), 0, spec=spec)  # type: ignore[arg-type]
    assert (metrics.n_requests, metrics.n_rejected) == (1, 1)
    assert metrics.slo_attainment(SLO(ttft_s=100.0)) == pytest.approx(0.5)


def test_a_request_beyond_the_kv_pool_is_refused_and_counted() -> None:
    spec = free(deployment(blocks=3))
    metrics = simulate(None, trace([(0, 4, 2), (0, 14, 2)]), 0, spec=spec)  # type: ignore[arg-type]
    assert metrics.n_rejected == 1


def test_one_refused_request_of_several_replicas_is_not_lost() -> None:
    """Equal replicas are simulated once; the one that refused is counted all the same."""
    spec = free(deployment(n_replicas=2))
    asked = trace([(0, 4, 2), (0, 4, 2), (0, 4, 2), (0, 4, 2), (0, 200_000, 2)])
    metrics = simulate(None, asked, 0, spec=spec)  # type: ignore[arg-type]
    assert (metrics.n_requests, metrics.n_rejected) == (4, 1)
    assert metrics.slo_attainment(SLO(ttft_s=100.0)) == pytest.approx(4 / 5)


def test_all_refused_is_an_error_that_names_the_limits() -> None:
    with pytest.raises(UserError, match=r"all 1 requests are refused.*3 units"):
        simulate(None, trace([(0, 14, 2)]), 0, spec=free(deployment(blocks=3)))  # type: ignore[arg-type]


def test_weights_that_do_not_fit_are_illegal() -> None:
    with pytest.raises(IllegalError, match="left for KV"):
        simulate(models.deployment(models.deepseek_v3()), trace([(0, 4, 2)]), 0)


def test_a_trace_that_was_not_read() -> None:
    workload = Workload(arrivals=Trace(file="x.csv"), n_requests=1)
    with pytest.raises(UserError, match=r"the trace x\.csv was not read"):
        simulate(None, workload, 0, spec=free(deployment()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constant(n_tokens=0), "n_tokens is 0"),
        (lambda: Uniform(low_tokens=5, high_tokens=4), "high 4 is below low 5"),
        (lambda: Uniform(low_tokens=0, high_tokens=4), "low is 0"),
        (lambda: Lognormal(mean_tokens=10, cv=math.nan), "cv is nan"),
        (lambda: Histogram(edges=(1, 2), weights=(1.0, 1.0)), "2 edges for 2 weights"),
        (lambda: Histogram(edges=(2, 1), weights=(1.0,)), "do not rise"),
        (lambda: Histogram(edges=(1, 2), weights=(0.0,)), "weights"),
        (lambda: Poisson(req_per_s=-1.0), "req_per_s is -1.0"),
        (lambda: Gamma(req_per_s=1.0, cv=0.0), "cv is 0.0"),
        (lambda: ConstantRate(req_per_s=math.nan), "req_per_s is nan"),
        (lambda: ClosedLoop(concurrency=0), "concurrency is 0"),
        (lambda: Workload(arrivals=AllAtOnce(), n_requests=1), "isl or osl is missing"),
        (
            lambda: Workload(
                arrivals=AllAtOnce(),
                n_requests=0,
                isl=Constant(n_tokens=1),
                osl=Constant(n_tokens=1),
            ),
            "n_requests is 0",
        ),
    ],
)
def test_impossible_workloads_say_what_is_wrong(make: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]
