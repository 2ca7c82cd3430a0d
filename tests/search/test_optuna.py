"""The sampler: within its budget, never twice the same, the same again when resumed."""

import pytest

from dse.pareto import hypervolume, reference_point
from dse.search import METHODS
from tests.search.worlds import TWO, World

sample, bound = METHODS["optuna"], METHODS["bound"]


def test_it_keeps_to_its_budget_and_never_asks_twice():
    world = World(n=400, seed=3)
    found = sample(world.survivors, world.evaluate, world.question(budget=60, round_size=16))
    asked = [point for call in world.calls for point in call]
    assert len(asked) == len(set(asked)) == found.n_simulated <= 60
    assert found.certificate.tolerance is None
    assert "nothing is proved" in found.certificate.statement


def test_a_resumed_run_proposes_the_same_points():
    calls = []
    for _ in range(2):
        world = World(n=300, seed=4)
        sample(world.survivors, world.evaluate, world.question(budget=40, round_size=16, seed=1))
        calls.append(world.calls)
    assert calls[0] == calls[1]


def test_it_comes_near_the_proved_front():
    world = World(n=400, seed=5)
    question = world.question(budget=160, round_size=16, tolerance=0.0)
    found, proved = (
        search(world.survivors, world.evaluate, question) for search in (sample, bound)
    )
    reference = reference_point(world.true, TWO)
    reached, best = (hypervolume(each.front, TWO, reference) for each in (found, proved))
    assert 0.95 * best <= reached <= best
    volumes = found.history["hypervolume"].to_list()
    assert volumes == sorted(volumes)


def test_a_small_space_is_simulated_whole():
    world = World(n=12, seed=6)
    found = sample(world.survivors, world.evaluate, world.question(budget=100, round_size=4))
    assert found.n_simulated == world.survivors.unique(["tp", "batch"]).height


@pytest.mark.parametrize("looseness", [(), (0.5, 0.03)])
def test_failures_and_empty_spaces_end_well(looseness):
    world = World(n=40, seed=7, looseness=looseness)
    world.broken = frozenset(world.survivors["point"].to_list())
    found = sample(world.survivors, world.evaluate, world.question(budget=16, round_size=8))
    assert found.n_failed == found.n_simulated
    assert found.front.is_empty()
    empty = World(n=0)
    assert sample(empty.survivors, empty.evaluate, empty.question()).front.is_empty()
