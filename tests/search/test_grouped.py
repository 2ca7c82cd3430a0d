"""A search for each value of a column: every value's front, and the whole one's, as exhaustive."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.pareto import non_dominated
from dse.search import METHODS, search_each
from tests.search.worlds import TWO, World


def points(frame):
    return sorted(frame["point"].to_list())


@settings(max_examples=15)
@given(st.builds(World, n=st.integers(1, 200), seed=st.integers(0, 1000)))
def test_every_value_has_its_own_front(world):
    question = world.question(TWO, tolerance=0.0)
    found = search_each(METHODS["bound"], world.survivors, world.evaluate, question, "tp")
    truth = METHODS["exhaustive"](world.survivors, world.evaluate, question)
    assert points(found.front) == points(truth.front)
    for _, group in truth.frame.group_by("tp"):
        own = non_dominated(group.filter("feasible"), TWO)
        marked = (
            found.frame.filter(
                (pl.col("tp") == group["tp"][0]) & pl.col("on_own_front").fill_null(value=False)
            )
            if "on_own_front" in found.frame.columns
            else found.front
        )
        assert points(marked) == points(own)


def test_the_certificate_counts_all_of_them():
    world = World(n=200, seed=3)
    question = world.question(TWO, tolerance=0.02)
    found = search_each(METHODS["bound"], world.survivors, world.evaluate, question, "tp")
    assert found.certificate.n_survivors == 200
    assert found.n_simulated == found.frame.height
    assert found.n_simulated + found.n_dropped_by_bound == 200
    assert found.certificate.valid


def test_without_a_column_it_is_the_search_itself():
    world = World(n=100, seed=1)
    question = world.question(TWO, tolerance=0.02)
    alone = METHODS["bound"](world.survivors, world.evaluate, question)
    for by in (None, "absent"):
        found = search_each(METHODS["bound"], world.survivors, world.evaluate, question, by)
        assert points(found.frame) == points(alone.frame)
