"""Deployments as the command line names them, over the shipped catalog."""

from dataclasses import replace

import pytest

from dse.catalog import Catalog
from dse.cli._deployment import deployment_of
from dse.cli._flags import DeploymentFlags
from dse.cost.memory import rank_memory
from dse.serving.legality import check

GIB = 2.0**30


@pytest.fixture(scope="session")
def catalog():
    return Catalog.load()


@pytest.fixture(scope="session")
def deploy(catalog):
    """Flags → Deployment; `hbm_gib` states the driver-visible memory."""

    def make(model, gpu="h100-sxm", **flags):
        return deployment_of(DeploymentFlags(model=model, gpu=gpu, **flags), catalog)

    return make


@pytest.fixture(scope="session")
def memory(deploy):
    """Flags → memory of the heaviest rank."""

    def make(model, gpu="h100-sxm", **flags):
        deployment = deploy(model, gpu, **flags)
        return rank_memory(deployment, deployment.pool("decode"))

    return make


@pytest.fixture(scope="session")
def broken(deploy):
    """Flags → the reasons for which no engine starts it."""

    def make(model, gpu="h100-sxm", *, redundant=0, **flags):
        deployment = deploy(model, gpu, **flags)
        pool = deployment.pools[0]
        layout = replace(pool.layout, redundant_experts=redundant)
        found = check(deployment.model, deployment.precision, layout, pool.engine, pool.gpu)
        return [illegal.reason for illegal in found]

    return make
