"""Pools give equal rows, and a point never takes another one down with it."""

import os
import signal
from dataclasses import dataclass

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.base.errors import UserError
from dse.run.chunk import cut
from dse.run.pool import in_process, open_pool


@dataclass(frozen=True)
class Squares:
    """Squares `x`; raises at -1, kills its worker at -9."""

    def __call__(self, points):
        values = points["x"].to_list()
        if -1 in values:
            raise ValueError("no square of -1 today")
        if -9 in values:
            os.kill(os.getpid(), signal.SIGKILL)
        return points.select(
            "x", y=pl.col("x") ** 2, status=pl.lit("ok"), error=pl.lit(None, pl.String)
        )

    def failed(self, points, status, error):
        lost = pl.lit(None, pl.Int64)
        return points.select("x", y=lost, status=pl.lit(status), error=pl.lit(error))


def run(pool, values, target=4):
    chunks = [pl.DataFrame({"x": values[i : i + target]}) for i in range(0, len(values), target)]
    return pl.concat(pool(Squares(), chunks)).sort("x")


@given(st.lists(st.floats(0, 3), max_size=60), st.sampled_from([0.25, 1.0]))
def test_chunks_keep_every_row_in_order_and_stay_even(costs, target_s):
    points = pl.DataFrame(
        {"x": range(len(costs)), "predicted_s": costs}, schema_overrides={"predicted_s": pl.Float64}
    )
    chunks = list(cut(points, target_s=target_s))
    assert [x for chunk in chunks for x in chunk["x"]] == list(range(len(costs)))
    for chunk in chunks:
        dearest = chunk["predicted_s"].max()
        assert chunk.height >= 1
        assert chunk["predicted_s"].sum() <= target_s + 2 * dearest


def test_chunks_of_unknown_cost_have_eight_rows():
    assert [chunk.height for chunk in cut(pl.DataFrame({"x": range(20)}))] == [8, 8, 4]


def test_a_point_that_raises_is_one_row_and_its_neighbours_are_whole():
    found = run(in_process, [1, 2, -1, 3, 4])
    assert found["status"].to_list() == ["error", "ok", "ok", "ok", "ok"]
    assert found["error"][0] == "ValueError: no square of -1 today"


@pytest.mark.parametrize(("workers", "predicted_s"), [(0, 1e9), ("0", 1e8), ("auto", 19.0)])
def test_small_work_stays_in_process(workers, predicted_s):
    with open_pool(workers, predicted_s=predicted_s) as pool:
        assert pool is in_process


@pytest.mark.parametrize("workers", ["many", -2, "1.5"])
def test_a_wrong_number_of_workers_is_the_users(workers):
    with pytest.raises(UserError, match="not a number of workers"), open_pool(workers):
        pass


@pytest.mark.ray
def test_ray_gives_the_rows_of_this_process(ray_pool):
    values = [*range(100), -1]
    assert run(ray_pool, values, 7).equals(run(in_process, values, 7))


@pytest.mark.ray
def test_a_point_that_kills_its_workers_is_one_crashed_row(ray_pool):
    found = run(ray_pool, [*range(20), -9], 8)
    assert found["status"].to_list() == ["crashed"] + ["ok"] * 20
    assert found["error"][0] == "2 workers died computing it alone"
