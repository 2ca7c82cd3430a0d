"""A node lost is held against no point, and Ray's messages never reach stdout."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POISONED = """
from dse.run.pool import on_ray
from tests.run.test_pool import run
with on_ray(n_workers=1) as pool:
    found = run(pool, [1, 2, -9], 3)
print(found["status"].to_list())
"""


def script(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.ray
def test_a_cluster_that_loses_a_node_gives_the_same_results():
    found = json.loads(script("-m", "tests.run.two_nodes"))
    assert found == {"statuses": ["ok"], "n": 80, "equal": True}


@pytest.mark.ray
def test_only_the_programs_own_words_are_on_stdout():
    assert script("-c", POISONED) == "['crashed', 'ok', 'ok']\n"
