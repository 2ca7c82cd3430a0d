"""Every wall of the family keeps the contract; its soundness is `test_soundness`."""

import pickle

import pytest

from dse.walls.facts import facts_of
from dse.walls.judge import ORDER, standard_walls
from dse.walls.kinds import WALLS
from tests import worlds

QUESTION = {
    "isl_low_tokens": 100.0,
    "osl_low_tokens": 20.0,
    "osl_high_tokens": 20.0,
    "shared_tokens": 0.0,
    "in_flight": 4.0,
    "concurrency": 4.0,
    "n_requests": 40.0,
    "slo_tpot_s": 0.05,
    "slo_ttft_s": 1.0,
    "slo_attainment": 0.99,
    "usd_per_gpu_hour": 2.0,
    "usd_per_mtok_limit": 10.0,
}


@pytest.mark.parametrize("kind", list(WALLS))
def test_wall_keeps_its_contract(kind):
    wall = WALLS[kind]()
    assert pickle.loads(pickle.dumps(wall)) == wall
    assert hash(wall) == hash(WALLS[kind]())
    assert wall.cites
    assert wall.says
    assert wall.unit in wall.demand_column
    assert wall.demand_column != wall.limit_column
    c = facts_of(worlds.deployment(worlds.mixture())) | QUESTION
    assert 0 <= float(wall.demand(c)) <= float(wall.limit(c))


@pytest.mark.parametrize("kind", list(WALLS))
def test_wall_reads_nothing_that_it_does_not_declare(kind):
    wall = WALLS[kind]()
    always = ("isl_low_tokens", "osl_low_tokens", "osl_high_tokens", "shared_tokens", "in_flight")
    known = {name: QUESTION[name] for name in (*always, *wall.needs)}
    c = facts_of(worlds.deployment(worlds.mixture())) | known
    wall.demand(c)
    wall.limit(c)


def test_the_order_names_walls_that_exist():
    assert set(ORDER) <= set(WALLS)
    assert sorted(wall.kind for wall in standard_walls()) == sorted(WALLS)
