"""One Ray for all tests that are marked `ray`."""

import pytest

from dse.run.pool import on_ray


@pytest.fixture(scope="session")
def ray_pool():
    with on_ray(n_workers=2) as pool:
        yield pool
