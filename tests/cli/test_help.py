"""What is seen before anything is run."""

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
    """0.3 s of CPU on an idle machine; a slow or busy one is told by the bare library's help."""
    bare = "import cyclopts; cyclopts.App(help='x')(['--help'], result_action='return_value')"
    ratios = []
    for _ in range(3):
        ratios.append(cpu_seconds("-m", "dse", "--help") / cpu_seconds("-c", bare))
        if ratios[-1] < 2:
            break
        time.sleep(1)
    assert min(ratios) < 2


def cpu_seconds(*arguments: str) -> float:
    """CPU seconds of an interpreter with these arguments, its start included."""
    script = (
        "import resource, subprocess, sys; "
        "subprocess.run([sys.executable, *sys.argv[1:]], check=True, stdout=-3); "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout)
