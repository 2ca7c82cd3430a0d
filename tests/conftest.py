"""What every test may ask for."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# A test that passes here passes elsewhere: examples follow from the test alone.
# `benchmarks/soak.py` looks for others, with the profile `random`.
settings.register_profile("random", derandomize=False, deadline=None)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Folders whose tests share one costly outcome or project.
_SHARE_A_FIXTURE = frozenset({"pipeline", "report"})


@pytest.hookimpl(tryfirst=True)  # before the marks are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where files are spread over processes, what shares a fixture is computed in one of them."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("ray"):
        return "ray"
    folder = item.path.parent.name
    is_shared = folder in _SHARE_A_FIXTURE and not item.get_closest_marker("chromium")
    return folder if is_shared else str(item.path)


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """The folder of measured data that `DSE_DATA` names; without it the test skips."""
    folder = os.environ.get("DSE_DATA")
    if not folder:
        pytest.skip("DSE_DATA names no folder of measured data")
    return Path(folder)
