"""What every test may ask for."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# A test that passes here passes elsewhere: examples follow from the test alone.
# `benchmarks/soak.py` looks for others, with the profile `random`.
settings.register_profile("random", derandomize=False, deadline=None)
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Folders whose tests share one costly outcome, project or Ray.
_SHARE_A_FIXTURE = frozenset({"pipeline", "report", "run"})


class Together(LoadScopeScheduling):
    """Where files are spread over processes, what shares a fixture is tested in one of them."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0])
        folder = file.parent.name
        is_shared = folder in _SHARE_A_FIXTURE and "chromium" not in file.stem
        return folder if is_shared else str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """The folder of measured data that `DSE_DATA` names; without it the test skips."""
    folder = os.environ.get("DSE_DATA")
    if not folder:
        pytest.skip("DSE_DATA names no folder of measured data")
    return Path(folder)
