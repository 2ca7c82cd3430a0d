"""Ctrl-C in the middle: what was simulated is kept, the way on is told, nothing is half there."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module

import pytest

from dse.run.pool import in_process
from dse.store import Store
from tests.pipeline.projects import HERE, SMALL

EVERY = ("--set", "search.method=exhaustive")


@contextmanager
def pool_that_is_stopped(*_, **__):
    def pool(work, chunks):
        for row in (row for chunk in chunks for row in chunk.iter_slices(1)):
            yield from in_process(work, [row])
            raise KeyboardInterrupt

    yield pool


def test_an_interrupted_run_keeps_its_results_and_is_resumed(fresh, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(import_module("dse.pipeline.run"), "open_pool", pool_that_is_stopped)
        said = fresh.run(*EVERY, "--json")
    assert said.code == 130
    error = said.document()["error"]
    assert error["code"] == 130
    assert str(fresh.store) in error["message"]
    assert error["remedy"].startswith("resume with: dse")
    assert not (fresh.folder / "reports").exists()
    assert Store.open(fresh.store).query("FROM result").height == 1
    assert Store.open(fresh.store).query("FROM run")["status"].to_list() == ["interrupted"]
    again = fresh.run(*EVERY, "--json").document()
    assert (again["n_reused"], again["n_simulated"]) == (1, 15)


@pytest.mark.slow
def test_a_signal_ends_a_run_and_the_next_one_goes_on(fresh):
    command = [sys.executable, "-m", "dse", "run", str(fresh.study()), *HERE]
    command += ["--set", "space.batch=[256]", *EVERY]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "survive the walls" in process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; what was simulated is in" in err
    assert "resume with: dse run" in err
    assert fresh.run("--json", small=SMALL).code == 0
