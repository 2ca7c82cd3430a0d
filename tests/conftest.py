"""What every test may ask for."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A test that passes here passes elsewhere: examples follow from the test alone.
# `benchmarks/soak.py` looks for others, with the profile `random`.
settings.register_profile("random", derandomize=False)
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """The folder of measured data that `DSE_DATA` names; without it the test skips."""
    folder = os.environ.get("DSE_DATA")
    if not folder:
        pytest.skip("DSE_DATA names no folder of measured data")
    return Path(folder)
