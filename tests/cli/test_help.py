"""What is seen before anything is run."""

import re
import subprocess
import sys
import time

import pytest

from dse import __version__
from dse.cli._app import COMMANDS
from tests.pipeline.projects import dse


def test_help_names_every_command():
    said = dse("--help")
    assert said.code == 0
    assert all(name in said.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name):
    said = dse(name, "--help")
    assert said.code == 0
    assert "Usage" in said.out


def test_the_version_and_no_command():
    assert dse("--version").out.strip() == __version__
    assert "Usage" in dse().out


def test_a_mistyped_command_gets_a_suggestion():
    said = dse("wals")
    assert said.code == 2
    assert "did you mean walls?" in said.err


def test_help_is_quick():
    """0.3 s on an idle machine; measured as CPU, so that a busy one does not count."""
    script = (
        "import resource, subprocess, sys; "
        "subprocess.run([sys.executable, '-m', 'dse', '--help'], check=True, stdout=-3); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime)"
    )
    times = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        times.append(float(re.findall(r"[\d.]+", done.stdout)[-1]))
        if times[-1] < 0.3:
            break
        time.sleep(1)
    assert min(times) < 0.3
