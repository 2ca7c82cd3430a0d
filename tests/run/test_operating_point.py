"""The highest passing rate of the grid, from any guess."""

import pytest

from dse.run.operating_point import grid_rate, max_goodput


def truth(limit: float) -> float:
    """The highest grid rate not above `limit`."""
    step = 0
    while grid_rate(step) > limit:
        step -= 1
    while grid_rate(step + 1) <= limit:
        step += 1
    return grid_rate(step)


@pytest.mark.parametrize("limit", [0.3, 1.0, 7.3, 120.0])
@pytest.mark.parametrize("guess", [0.0, 0.01, 5.0, 1e6])
def test_any_guess_finds_the_same(limit: float, guess: float) -> None:
    found = max_goodput(lambda rate: rate <= limit, ceiling_req_per_s=1000.0, guess_req_per_s=guess)
    assert found.req_per_s == truth(limit)
    assert found.step_fraction == pytest.approx(0.0219, abs=1e-4)
    assert len(set(found.probed)) == found.n_runs


def test_a_good_guess_takes_few_runs() -> None:
    found = max_goodput(lambda rate: rate <= 10.0, ceiling_req_per_s=1e3, guess_req_per_s=9.0)
    assert found.n_runs <= 8


def test_the_ceiling_is_the_best_there_is() -> None:
    found = max_goodput(lambda rate: True, ceiling_req_per_s=3.0)
    assert found.req_per_s == truth(3.0)


def test_nothing_passes() -> None:
    found = max_goodput(lambda rate: False, ceiling_req_per_s=100.0, guess_req_per_s=1.0)
    assert found.req_per_s == 0.0
    assert found.n_runs > 0
