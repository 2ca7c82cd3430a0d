"""What seeds share: nearly the same tokens, in another order, and so nearly the same medians."""

from dataclasses import replace
from importlib import import_module
from itertools import combinations
from random import Random

import numpy as np
import pytest

from dse.serving.arrivals import ClosedLoop, Poisson
from dse.serving.layout import Layout
from dse.serving.lengths import Constant, Histogram, Lengths, Lognormal, Uniform
from dse.serving.workload import Workload
from dse.sim import compile_run, draws, simulate
from dse.sim.draws import shuffled, tokens_at
from dse.sim.traffic import Requests, _Kept, _realised, realised_requests
from tests import worlds

LENGTHS = Uniform(low_tokens=1, high_tokens=50)
LOAD = Workload(arrivals=Poisson(req_per_s=1.0), n_requests=50, isl=LENGTHS, osl=LENGTHS)


def test_each_length_comes_once_in_as_many_requests() -> None:
    for seed in range(3):
        asked = realised_requests(LOAD, seed)
        for found in (asked.isl_tokens, asked.osl_tokens):
            assert sorted(found) == list(range(1, 51))
        assert list(asked.isl_tokens) != list(asked.osl_tokens)


def test_a_longer_run_begins_with_the_shorter_ones_requests() -> None:
    short, long = realised_requests(LOAD, 1), realised_requests(LOAD, 1, 130)
    for name in ("isl_tokens", "osl_tokens", "arrival_s"):
        np.testing.assert_array_equal(getattr(long, name)[:50], getattr(short, name))
    assert sorted(long.isl_tokens[50:100]) == list(range(1, 51))


def test_the_mean_is_the_one_asked_for() -> None:
    """A log-normal of cv 1 has a mean 14% off in one of three samples of 50 drawn freely."""
    asked = replace(LOAD, osl=Lognormal(mean_tokens=400, cv=1.0))
    for seed in range(5):
        found = realised_requests(asked, seed).osl_tokens.mean()
        assert found == pytest.approx(400, rel=0.05)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("isl", "osl"), [(1024, 1024), (8192, 1024)])
@pytest.mark.parametrize("concurrency", [4, 16, 64])
def test_medians_of_two_seeds_lie_within_two_percent(isl: int, osl: int, concurrency: int) -> None:
    """A closed loop as InferenceX runs it: 0.8 to 1.0 of the lengths, ten rounds."""
    deployment = worlds.deployment(
        worlds.llama_8b(), layout=Layout(tp=2), by=worlds.engine(max_num_batched_tokens=8192)
    )
    load = Workload(
        arrivals=ClosedLoop(concurrency=concurrency),
        n_requests=10 * concurrency,
        isl=Uniform(low_tokens=int(0.8 * isl), high_tokens=isl),
        osl=Uniform(low_tokens=int(0.8 * osl), high_tokens=osl),
    )
    spec = compile_run(deployment, "roofline")
    runs = [simulate(deployment, load, seed, spec=spec) for seed in range(6)]
    for name in ("ttft", "tpot"):
        values = [getattr(run, name).p50 for run in runs]
        apart = [abs(a - b) for a, b in combinations(values, 2)]
        assert np.mean(apart) < 0.02 * np.median(values), (name, values)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 1000])
def test_numbers_are_shuffled_as_python_shuffles_them(n: int) -> None:
    """Recorded results depend on the order, and on what the generator gives next."""
    ours, pythons = Random(n), Random(n)
    expected = list(range(n))
    pythons.shuffle(expected)
    assert shuffled(n, ours) == expected
    assert ours.random() == pythons.random()


@pytest.mark.parametrize(
    "lengths",
    [
        Constant(n_tokens=7),
        Uniform(low_tokens=3200, high_tokens=4000),
        Lognormal(mean_tokens=300, cv=1.2, max_tokens=900),
        Histogram(edges=(1, 5, 9, 30), weights=(1.0, 0.0, 3.0)),
    ],
)
def test_many_quantiles_have_the_lengths_of_each(lengths: Lengths) -> None:
    quantiles = np.concatenate([np.linspace(0.0, 1.0, 802)[:-1], [np.nextafter(1.0, 0.0)]])
    expected = [lengths.at(each) for each in quantiles.tolist()]
    assert tokens_at(lengths, quantiles).tolist() == expected


def test_requests_are_drawn_once_and_nobody_may_change_them() -> None:
    found = realised_requests(LOAD, 5)
    assert realised_requests(replace(LOAD), 5) is found
    assert realised_requests(LOAD, 6) is not found
    assert realised_requests(LOAD, 5, 51) is not found
    with pytest.raises(ValueError, match="read-only"):
        found.isl_tokens[0] = 1


def test_no_more_requests_are_kept_than_may_be() -> None:
    kept = _Kept(120)
    draws = [kept.of((seed,), lambda seed=seed: draw(seed)) for seed in (0, 1)]
    assert kept.of((0,), lambda: draw(0)) is draws[0]
    kept.of((2,), lambda: draw(2))
    assert kept.of((0,), lambda: draw(0)) is draws[0]
    assert kept.of((1,), lambda: draw(1)) is not draws[1]


def draw(seed: int) -> Requests:
    return _realised(LOAD, seed, 50)


@pytest.mark.parametrize("n", [draws.MANY, 5000, 16384, 30001])
def test_many_are_drawn_at_once_as_one_by_one(n):
    """And the generator goes on as if they had been drawn so."""
    import_module("dse.sim._run")
    one, other = Random(n), Random(n)
    one.random()
    other.random()
    order, inside = draws._many(n, one)
    assert order.tolist() == draws.shuffled(n, other)
    assert inside.tolist() == [other.random() for _ in range(n)]
    assert one.getstate() == other.getstate()


def test_too_few_words_are_told(monkeypatch):
    monkeypatch.setattr(draws, "WORDS", 1)
    random = Random(1)
    before = random.getstate()
    assert draws._many(5000, random) is None
    assert random.getstate() == before
