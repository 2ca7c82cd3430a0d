"""What every test may ask for."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """The folder of measured data that `DSE_DATA` names; without it the test skips."""
    folder = os.environ.get("DSE_DATA")
    if not folder:
        pytest.skip("DSE_DATA names no folder of measured data")
    return Path(folder)
