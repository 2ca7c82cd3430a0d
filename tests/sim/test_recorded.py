"""A result that changes under the same SIM_VERSION fails here."""

import json

import pytest

from dse.sim import SIM_VERSION
from tests.sim.recorded import FILE, results


@pytest.mark.usefixtures("compiled")
def test_results_change_only_with_the_version() -> None:
    recorded = json.loads(FILE.read_text("utf-8"))
    found = results()
    assert recorded["sim_version"] == SIM_VERSION
    assert found.keys() == recorded.keys()
    assert len(found) == 21
    for name in set(found) - {"sim_version"}:
        assert found[name] == pytest.approx(recorded[name], rel=1e-9, nan_ok=True), name
