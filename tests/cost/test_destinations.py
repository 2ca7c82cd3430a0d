"""Distinct destinations of a token: by hand, and against sampled routing."""

import numpy as np
import pytest

from dse.cost.destinations import distinct
from dse.cost.network import network_floor
from dse.model.ops import Collective
from tests import worlds


def test_without_groups_the_chance_of_a_miss_is_a_power():
    assert distinct(8, 8) == pytest.approx(8 * (1 - (7 / 8) ** 8))
    assert distinct(1, 8) == 1.0
    assert distinct(4, 8, 4, 4) == pytest.approx(distinct(4, 8))  # no limit


def test_one_group_stays_on_one_part_or_spreads_over_its_own():
    assert distinct(8, 8, 8, 1) == pytest.approx(1.0)
    assert distinct(2, 8, 8, 1) == pytest.approx(1.0)
    assert distinct(32, 8, 8, 1) == pytest.approx(4 * (1 - (3 / 4) ** 8))


@pytest.mark.parametrize("best", [1, 2])
@pytest.mark.parametrize("parts", [2, 4, 8, 16, 32, 64])
def test_sampled_routing_agrees(parts, best):
    """Top-8 of 256 experts in 4 of 8 groups, chosen by the sum of their `best` scores."""
    scores = np.random.default_rng(0).random((4000, 8, 32))
    rank = np.sort(scores, axis=2)[:, :, -best:].sum(axis=2).argsort(axis=1)
    np.put_along_axis(scores, rank[:, :4, None], 0.0, axis=1)
    chosen = np.argpartition(scores.reshape(4000, 256), -8, axis=1)[:, -8:] // (256 // parts)
    sampled = np.mean([len(set(row)) for row in chosen.tolist()])
    assert distinct(parts, 8, 8, 4) == pytest.approx(sampled, rel=0.06)


def test_a_limit_on_groups_lowers_the_floor_across_nodes():
    """64 ranks of eight a domain: at most four domains a token, of 5.25 without a limit."""
    free = Collective(kind="ep_dispatch", n_bytes=1e9, n_ranks=64, top_k=8)
    held = Collective(
        kind="ep_dispatch", n_bytes=1e9, n_ranks=64, top_k=8, groups=8, top_groups=4
    )  # fmt: skip
    found = [network_floor(each, worlds.fabric()).bytes_s * 1e10 / 1e9 for each in (free, held)]
    assert found == pytest.approx([5.25 * 7 / 8, 3.98 * 7 / 8], rel=0.01)
