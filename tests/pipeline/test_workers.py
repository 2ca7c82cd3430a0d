"""This process and local Ray give equal answers."""

import pytest

import dse

SET = {"space.batch": "[2, 8]", "space.precision.weights": "fp8", "search.method": "exhaustive"}


@pytest.mark.ray
def test_any_number_of_workers_gives_equal_results(project):
    one, two = (
        dse.run(project.study(), store=project.folder / f"{n}.duckdb", workers=n, set_=SET)
        for n in (0, 2)
    )
    assert two.funnel().n_simulated == one.funnel().n_simulated == 16
    by_id = [each.results().sort("point_id").drop("cpu_s", strict=False) for each in (one, two)]
    assert by_id[0].equals(by_id[1])
    assert one.front()["point_id"].to_list() == two.front()["point_id"].to_list()
