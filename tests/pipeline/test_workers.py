"""This process and local Ray give equal answers."""

import json
import subprocess
import sys

import pytest

from dse.store import Store
from tests.pipeline.projects import SMALL

EVERY = ("--set", "search.method=exhaustive")


def ran(project, n_workers):
    """The document and the stored results of a run in a process of its own, as users start it."""
    store = project.folder / f"{n_workers}.duckdb"
    command = [sys.executable, "-m", "dse", "run", str(project.study()), *SMALL, *EVERY, "--json"]
    command += ["--workers", str(n_workers), "--store", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = Store.open(store).query("FROM result ORDER BY ALL")
    return json.loads(done.stdout), rows.drop("run_id", "cpu_s", strict=False)


@pytest.mark.ray
def test_any_number_of_workers_gives_equal_results(fresh):
    (one, here), (two, there) = ran(fresh, 0), ran(fresh, 2)
    assert one["n_simulated"] == two["n_simulated"] == 16
    assert one["front"] == two["front"]
    varying = [name for name in here.columns if not here[name].equals(there[name])]
    assert set(varying) <= {"computed_at", "worker", "wall_s"}
