"""Both paths of the simulator; compilation happens once a session, before the first timed test."""

import pytest

from dse.sim.fast import run_fast
from dse.sim.traffic import realised_requests
from tests.sim.worlds import deployment, free, trace


@pytest.fixture(scope="session")
def compiled() -> None:
    """The fast path, compiled."""
    run_fast(free(deployment()), realised_requests(trace([(0.0, 4, 2)]), 0))
