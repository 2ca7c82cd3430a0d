"""`import dse`: the same answers as frames."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dse
import dse.run.pool  # the package of that name must not hide the verb
from dse.base.errors import StoreError, UserError

SET = {"space.batch": "[4]", "space.precision.weights": "fp8", "space.gpu": "h200-sxm"}


@pytest.fixture(scope="module")
def report(project):
    return dse.run(project.study(), store=project.folder / "api.duckdb", workers=0, set_=SET)


def test_run_gives_frames(report):
    front = report.front()
    assert isinstance(front, pl.DataFrame)
    assert front.height == report.results()["on_front"].sum() > 0
    assert {"point_id", "gpu", "tp", "output_tok_per_s_per_gpu", "tpot_mean_s"} <= {*front.columns}
    assert not {"point", "structure"} & {*front.columns}
    assert report.near_misses()["reason"].null_count() == 0
    assert report.funnel().n_simulated + report.funnel().n_dropped_by_bound == 4


def test_show_gives_the_same_and_simulates_nothing(project, report):
    again = dse.show(project.study(), store=project.folder / "api.duckdb", set_=SET)
    # A column without a value has no type of its own in the store.
    assert_frame_equal(
        again.front(),
        report.front(),
        check_column_order=False,
        check_dtypes=False,
        check_exact=True,
    )
    assert again.funnel().n_simulated == 0


def test_show_of_what_was_not_run_says_so(project, report, tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        dse.show(project.study(), store=tmp_path / "none.duckdb")
    other = SET | {"space.batch": "[5]"}
    with pytest.raises(UserError, match="the store lacks the results"):
        dse.show(project.study(), store=project.folder / "api.duckdb", set_=other)


def test_a_loaded_study_is_run_as_well(project, report):
    study = dse.load_study(project.study(), set_=SET)
    again = dse.run(study, store=project.folder / "api.duckdb", workers=0)
    assert again.funnel().n_reused == report.funnel().n_simulated


def test_a_report_is_written_when_asked_for(report, tmp_path):
    files = report.write(tmp_path / "page", ("md", "csv"))
    assert [file.name for file in files] == ["README.md", "front.csv"]


def test_simulate_is_one_of_the_names():
    from tests import worlds

    world = worlds.deployment(worlds.llama_8b())
    workload = dse.Workload.__annotations__
    assert "arrivals" in workload
    assert dse.simulate.__module__ == "dse.sim.simulate"
    assert world.n_gpus == 1
