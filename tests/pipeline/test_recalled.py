"""The answer that a run wrote is read as it is while it stands, and searched again when not."""

import duckdb
import pytest
from polars.testing import assert_frame_equal

import dse

SET = {"space.batch": "[4]", "space.precision.weights": "fp8", "space.gpu": "h200-sxm"}


class Searched(Exception):
    pass


@pytest.fixture(scope="module")
def report(project):
    return dse.run(project.study(), store=project.folder / "recalled.duckdb", workers=0, set_=SET)


@pytest.fixture
def show(project, report, monkeypatch):
    def refuse(*_args):
        raise Searched

    monkeypatch.setattr("dse.pipeline.answering.search_each", refuse)
    return lambda: dse.show(project.study(), store=project.folder / "recalled.duckdb", set_=SET)


def test_an_answer_that_stands_is_read_as_it_was_written(show, report):
    again = show()
    assert_frame_equal(again.results(), report.results(), check_dtypes=False, check_exact=True)
    assert_frame_equal(again.front(), report.front(), check_dtypes=False, check_exact=True)
    assert again.ran.outcome.certificate == report.ran.outcome.certificate
    assert again.ran.outcome.details == report.ran.outcome.details
    assert again.funnel().n_reused == report.funnel().n_simulated
    assert again.near_misses().equals(report.near_misses())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE run SET catalog_digest = 'another'",
        "UPDATE run SET record = NULL",
        "DELETE FROM answer WHERE point_id = (SELECT max(point_id) FROM answer)",
        "UPDATE answer SET physics_id = 'another'",
        "UPDATE answer SET point_id = point_id || 'x'",
    ],
)
def test_what_changed_since_is_searched_again(show, report, project, change):
    path = project.folder / "recalled.duckdb"
    whole = path.read_bytes()
    with duckdb.connect(str(path)) as connection:
        connection.execute(change)
    try:
        with pytest.raises(Searched):
            show()
    finally:
        path.write_bytes(whole)
