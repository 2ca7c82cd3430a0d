"""Floors of collectives: bytes by hand, domains, and measured constants."""

from dataclasses import replace

import pytest

from dse.cost.network import network_floor, spans
from dse.model.ops import Collective
from tests import worlds

FABRIC = worlds.fabric()


@pytest.mark.parametrize(
    ("kind", "n_ranks", "share"),
    [
        ("all_reduce", 8, 2 * 7 / 8),
        ("all_gather", 8, 7 / 8),
        ("reduce_scatter", 4, 3 / 4),
        ("p2p", 2, 1.0),
    ],
)
def test_bytes_within_a_domain(kind, n_ranks, share):
    floor = network_floor(Collective(kind=kind, n_bytes=1e9, n_ranks=n_ranks), FABRIC)
    assert floor.n_bytes == pytest.approx(share * 1e9)
    assert floor.bytes_s == pytest.approx(share * 1e9 / 1e11)
    assert floor.latency_s == 1e-6


def test_dispatch_counts_distinct_destinations():
    # EP8, 8 experts per token: 4.6 remote ranks, not 7 (DeepEP deduplicates).
    op = Collective(kind="ep_dispatch", n_bytes=1.0, n_ranks=8, top_k=8)
    assert network_floor(op, FABRIC).n_bytes == pytest.approx(4.6, abs=0.01)


def test_domains_of_strided_groups():
    def of(n_ranks, stride):
        return spans(Collective(kind="p2p", n_bytes=1.0, n_ranks=n_ranks, stride=stride), FABRIC)

    assert of(8, 1) == (8, 1)
    assert of(16, 1) == (8, 2)
    assert of(2, 8) == (1, 2)
    assert of(4, 4) == (2, 2)


def test_all_reduce_across_domains_is_hierarchical():
    floor = network_floor(Collective(kind="all_reduce", n_bytes=8e9, n_ranks=16), FABRIC)
    # Each of 8 peers carries an eighth across: 2 · 1/2 · 8e9 / 8 at 10 GB/s.
    assert floor.bytes_s == pytest.approx(max(2 * 7 / 8 * 8e9 / 1e11, 1e9 / 1e10))
    assert floor.latency_s == 1e-5


def test_mesh_pair_has_its_share_of_the_links():
    mesh = replace(FABRIC, scale_up=replace(FABRIC.scale_up, peer_fraction=1 / 7))
    pair, all_eight = (
        network_floor(Collective(kind="all_gather", n_bytes=1e9, n_ranks=n), mesh).bytes_s
        for n in (2, 8)
    )
    assert pair == pytest.approx(0.5e9 / (1e11 / 7))
    assert all_eight == pytest.approx(7 / 8 * 1e9 / 1e11)


def test_measured_constants_win():
    link = replace(FABRIC.scale_up, all_reduce_bytes_per_s=43e9, exchange_latency_s=60e-6)
    measured = replace(FABRIC, scale_up=link)
    reduce = network_floor(Collective(kind="all_reduce", n_bytes=43e6, n_ranks=8), measured)
    assert reduce.bytes_s == pytest.approx(1e-3)
    exchange = Collective(kind="ep_combine", n_bytes=1.0, n_ranks=8, top_k=8)
    assert network_floor(exchange, measured).latency_s == 60e-6
