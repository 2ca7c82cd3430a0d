"""Every result is simulated once, kept whatever happens, and the same on every pool."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dse.store import KEYS, Store
from tests.run.points import DEPLOYMENTS, TOO_SMALL, evaluator, points

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "dse.duckdb") as opened:
        yield opened


def test_one_row_a_point_and_replicate_in_order(store):
    asked = points(3)
    found = evaluator(store)(asked)
    assert found["point"].to_list() == [p for p in asked["point"] for _ in range(2)]
    assert found["replicate"].to_list() == [0, 1] * asked.height
    assert set(found["status"]) == {"ok"}
    assert found["slo_attainment"].is_between(0, 1).all()
    goodput = found["request_per_s"] * found["slo_attainment"]
    assert (found["goodput_req_per_s"] - goodput).abs().max() < 1e-9 * goodput.max()


def test_the_second_time_nothing_is_simulated(store):
    once, again = evaluator(store), evaluator(store)
    first = once(points(3))
    store.flush()
    assert_frame_equal(again(points(3)), first, check_column_order=False)
    assert (once.n_simulated, once.n_reused) == (12, 0)
    assert (again.n_simulated, again.n_reused) == (0, 12)


def test_an_slo_changes_no_simulation(store):
    evaluator(store)(points(2))
    other = evaluator(store, slo=None)
    other(points(2))
    assert other.n_simulated == 0


def test_more_replicates_simulate_only_the_new_ones(store):
    evaluator(store)(points(2))
    more = evaluator(store, replicates=3)
    more(points(2))
    assert (more.n_simulated, more.n_reused) == (4, 8)


def test_points_that_are_the_same_are_simulated_once(store):
    same = {**DEPLOYMENTS, 2: DEPLOYMENTS[1]}
    found = evaluator(store, deployments=same)
    rows = found(points(2))
    assert found.n_simulated == 4
    assert rows.height == 8


def test_a_point_that_cannot_run_is_a_row_and_is_retried_when_asked(store):
    asked = points(1, (1, TOO_SMALL))
    once = evaluator(store)
    found = once(asked)
    assert found["status"].to_list() == ["ok", "ok", "error", "error"]
    assert found["error"][2].startswith("IllegalError: ")
    assert once.n_failed == 2
    again, retried = evaluator(store), evaluator(store, retry=("error",))
    again(asked)
    retried(asked)
    assert (again.n_simulated, retried.n_simulated) == (0, 2)


def test_points_that_all_fail_have_no_goodput(store):
    found = evaluator(store)(points(2, (TOO_SMALL,)))
    assert set(found["status"]) == {"error"}
    assert found["goodput_req_per_s_per_gpu"].null_count() == found.height


def test_the_store_knows_who_the_points_are(store):
    evaluator(store)(points(2))
    store.flush()
    found = store.query("FROM point JOIN deployment USING (deployment_id) ORDER BY concurrency")
    assert found["concurrency"].to_list() == [1, 1, 2, 2]
    assert found["facts"].str.contains('"d_model":128').all()
    rows = store.query(
        "SELECT count(*) AS n FROM request_latency JOIN point_result USING (point_id)"
    )
    assert rows["n"].item() > 0


def run_and_kill(path, n, after):
    """Kill -9 a run after so many chunks; returns whether it was still at work."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.run.points", str(path), str(n), "0.02"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    was_running = process.poll() is None
    process.kill()
    process.wait()
    process.stdout.close()
    return was_running


def test_killed_runs_resume_to_the_same_store(tmp_path):
    whole, killed = tmp_path / "whole.duckdb", tmp_path / "killed.duckdb"
    with Store.open(whole) as store:
        evaluator(store)(points(12))
    for after in (1, 2, 4):
        assert run_and_kill(killed, 12, after), "the run was over before it was killed"
    with Store.open(killed) as store:
        resumed = evaluator(store)
        resumed(points(12))
    kept = [Store.open(path).query("FROM result").sort(KEYS) for path in (whole, killed)]
    assert_frame_equal(*kept, check_column_order=False)
    assert resumed.n_reused > 0, "nothing outlived the kills"
    sketches = [Store.open(p).query("FROM latency_sketch").sort(KEYS) for p in (whole, killed)]
    assert_frame_equal(*sketches)


@pytest.mark.ray
def test_ray_fills_the_store_as_this_process_does(tmp_path, ray_pool):
    frames = []
    for name, kind in (("here", {}), ("ray", {"pool": ray_pool})):
        with Store.open(tmp_path / f"{name}.duckdb") as store:
            frames.append(evaluator(store, **kind)(points(10, (1, 2, TOO_SMALL))))
    assert_frame_equal(*frames, check_column_order=False)
    assert frames[0].filter(pl.col("status") == "error").height == 20
