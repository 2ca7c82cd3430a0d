"""What is told of a point beyond its row is told at the load that the point ran at."""

from types import SimpleNamespace

import pytest

from dse.cli._deployment import deployment_of
from dse.cli._flags import DeploymentFlags
from dse.pipeline.details import _walls

LENGTHS = {"isl_tokens": 1000, "osl_tokens": 300}


@pytest.mark.parametrize(
    ("load", "n_requests"),
    [
        ({"concurrency": 64}, 32),
        ({"request_per_s": 12.0, "e2e_mean_s": 5.1}, 31),
        ({"request_per_s": 0.1, "e2e_mean_s": 1.0}, 1),
        ({}, 1),
    ],
    ids=["closed loop", "offered rate", "idle", "unknown"],
)
def test_a_decode_step_has_the_requests_that_ran(load, n_requests):
    flags = DeploymentFlags(model="llama-3.1-8b", gpu="h100-sxm", gpus=2, layout="tp=1")
    told = _walls(SimpleNamespace(slo=None), deployment_of(flags), {**LENGTHS, **load})
    assert told["steps"]["decode"]["n_requests"] == n_requests
