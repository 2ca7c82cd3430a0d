"""Which rank takes a request."""

from dataclasses import dataclass

import pytest

from dse.serving.request import Request
from dse.serving.routers import ROUTERS, LeastLoaded, PrefixAware, RoundRobin


@dataclass
class Rank:
    n_requests: int
    cached: int = 0

    def cached_tokens(self, request: Request) -> int:
        return self.cached


REQUEST = Request(index=0, arrival_s=0.0, isl_tokens=10, osl_tokens=1)


def test_round_robin_takes_turns() -> None:
    ranks = [Rank(9), Rank(0), Rank(0)]
    assert [RoundRobin().pick(REQUEST, ranks, n) for n in range(4)] == [0, 1, 2, 0]


def test_least_loaded_takes_the_first_of_the_idlest() -> None:
    assert LeastLoaded().pick(REQUEST, [Rank(3), Rank(1), Rank(1)], 0) == 1


@pytest.mark.parametrize(
    ("ranks", "picked"),
    [
        ([Rank(5, 8), Rank(1, 4)], 0),
        ([Rank(5, 8), Rank(1, 8)], 1),
        ([Rank(50, 8), Rank(1, 0)], 1),
    ],
)
def test_prefix_aware_weighs_cache_against_load(ranks: list[Rank], picked: int) -> None:
    assert PrefixAware(max_imbalance=32).pick(REQUEST, ranks, 0) == picked


def test_only_round_robin_is_stateless() -> None:
    assert {kind for kind, part in ROUTERS.items() if part.is_stateless} == {"round_robin"}
