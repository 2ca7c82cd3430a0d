"""Collectives: floors, spans, hand-sized messages, published expert-exchange times."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.catalog import Catalog
from dse.cost.collectives import COLLECTIVES, Protocol, Span, collective_model
from dse.cost.collectives._base import fastest, reach
from dse.cost.collectives.ep_dispatch import copies
from dse.hardware import Fabric, Link
from dse.model.ops import Collective, CollectiveKind
from tests import worlds


def nvlink4() -> Fabric:
    """Eight H100 behind NVLink switches, one 400 Gb/s port each."""
    up = Link(n_gpus=8, bytes_per_s=450e9, latency_s=12e-6, latency_floor_s=2e-6)
    out = Link(n_gpus=4096, bytes_per_s=50e9, latency_s=33e-6, latency_floor_s=5e-6)
    return worlds.fabric(name="NVLink4-8", kind="nvlink", scale_up=up, scale_out=out)


def mesh() -> Fabric:
    """MI300X: seven xGMI links, one to each peer."""
    up = Link(
        n_gpus=8, bytes_per_s=448e9, latency_s=2e-5, latency_floor_s=5e-6, peer_fraction=1 / 7
    )
    return worlds.fabric(name="mesh", kind="xgmi", scale_up=up)


def measured() -> list[Fabric]:
    """Switched, PCIe and rack-wide fabrics of the catalog."""
    catalog = Catalog.load()
    return [catalog.fabric(n) for n in ("NVLink5-8", "PCIe5-8", "NVL72", "NVL72-GB300")]


FABRICS = [nvlink4(), mesh(), *measured()]


def op(kind: CollectiveKind, n_bytes: object, n_ranks: int, **more: object) -> Collective:
    return Collective(kind=kind, n_bytes=n_bytes, n_ranks=n_ranks, **more)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(COLLECTIVES)),
    n_bytes=st.floats(1, 1e10),
    n_ranks=st.integers(2, 128),
    stride=st.sampled_from([1, 2, 8, 16]),
    top_k=st.integers(1, 12),
    tokens=st.integers(0, 8192),
    link=st.sampled_from(["nvlink", "pcie", "xgmi", "unheard-of"]),
)
def test_no_collective_is_faster_than_its_floor(
    kind: CollectiveKind,
    n_bytes: float,
    n_ranks: int,
    stride: int,
    top_k: int,
    tokens: int,
    link: str,
) -> None:
    ranks = 2 if kind == "p2p" else n_ranks
    each = op(kind, n_bytes, ranks, stride=stride, top_k=top_k, tokens=tokens)
    for fabric in (worlds.fabric(kind=link), nvlink4()):
        floor = collective_model(fabric, tier="floor").seconds(each)
        assert 0.0 < floor <= collective_model(fabric).seconds(each)


def test_where_ranks_stand() -> None:
    fabric = worlds.fabric(gpus=8)
    assert Span.of(op("all_reduce", 1.0, 8), fabric) == Span(n=8, inner=8, domains=1)
    assert Span.of(op("all_reduce", 1.0, 16), fabric) == Span(n=16, inner=8, domains=2)
    assert Span.of(op("all_reduce", 1.0, 4, stride=4), fabric) == Span(n=4, inner=2, domains=2)
    assert Span.of(op("p2p", 1.0, 2, stride=8), fabric) == Span(n=2, inner=1, domains=2)


def test_floor_of_an_all_reduce_by_hand() -> None:
    """8 ranks at 100 GB/s, 1 GB: 2·7/8 GB is 17.5 ms, plus 1 µs. Sixteen: each rank's eighth
    crosses once at 10 GB/s, 12.5 ms, while 17.5 ms pass inside; plus the network's 10 µs."""
    floor = collective_model(worlds.fabric(), tier="floor")
    assert floor.seconds(op("all_reduce", 1e9, 8)) == pytest.approx(17.5e-3 + 1e-6)
    assert floor.seconds(op("all_reduce", 1e9, 16)) == pytest.approx(17.5e-3 + 1e-5)
    assert floor.seconds(op("all_gather", 1e9, 8)) == pytest.approx(8.75e-3 + 1e-6)
    assert floor.seconds(op("p2p", 1e9, 2)) == pytest.approx(1e-2 + 1e-6)


def test_one_rank_and_no_bytes_are_silent() -> None:
    model = collective_model(worlds.fabric())
    assert model.seconds(op("all_reduce", 1e6, 1)) == 0.0
    assert np.array_equal(
        model.seconds(op("all_reduce", np.array([0.0, 1e6]), 8)) > 0, [False, True]
    )


def test_copies_of_a_token() -> None:
    """EP8, 8 experts of 256: 5.25 distinct ranks, 4.6 of them remote (DeepSeek-V3's arithmetic);
    without deduplication 7. Two domains of 8: 0.996 crossings, or 4 of 8 copies."""
    inside, two = Span(n=8, inner=8, domains=1), Span(n=16, inner=8, domains=2)
    each = op("ep_dispatch", 1.0, 8, top_k=8)
    assert copies(each, inside, deduplicates=True)[0] == pytest.approx(4.6, abs=0.01)
    assert copies(each, inside, deduplicates=False) == (7.0, 0.0)
    assert copies(each, two, deduplicates=True)[1] == pytest.approx(0.996, abs=0.001)
    assert copies(each, two, deduplicates=False)[1] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("kind", "element", "measured_us"),
    [
        ("ep_dispatch", 1, {8: 39.8, 16: 102.0, 32: 143.0, 64: 167.0}),
        ("ep_combine", 2, {8: 72.0, 16: 186.0, 32: 263.0, 64: 305.0}),
    ],
)
def test_low_latency_exchange_of_128_tokens_on_h100(
    kind: CollectiveKind, element: int, measured_us: dict[int, float]
) -> None:
    """DeepEP low-latency, hidden 7168, top 8, on 1, 2, 4 and 8 nodes (silicon database, H100)."""
    model = collective_model(nvlink4())
    for ranks, microseconds in measured_us.items():
        each = op(kind, 128 * 7168.0 * element, ranks, tokens=128, top_k=8)
        assert model.seconds(each) * 1e6 == pytest.approx(microseconds, rel=0.06)
        assert model.interval(each)[1] < 1.2


def test_small_all_reduce_on_h100() -> None:
    """vLLM's captured custom all-reduce of 16 KB: 4.5 µs on two GPUs, 5.3 on eight (as above)."""
    model = collective_model(nvlink4(), "vllm")
    assert model.seconds(op("all_reduce", 16384.0, 2)) * 1e6 == pytest.approx(4.5, rel=0.1)
    assert model.seconds(op("all_reduce", 16384.0, 8)) * 1e6 == pytest.approx(5.3, rel=0.1)


def test_two_nodes_are_never_priced_as_one() -> None:
    model = collective_model(nvlink4())
    for kind in COLLECTIVES:
        ranks = 2 if kind == "p2p" else 16
        near = op(kind, 1e6, min(ranks, 8), tokens=64, top_k=8)  # type: ignore[arg-type]
        far = op(kind, 1e6, ranks, tokens=64, top_k=8, stride=8)  # type: ignore[arg-type]
        assert model.seconds(far) > 1.3 * model.seconds(near), kind


def test_a_clusters_measured_constants_win() -> None:
    """Floor First's H20 cluster (arXiv:2607.05876): 43 GB/s algorithm bandwidth, 33 µs each."""
    link = Link(
        n_gpus=8, bytes_per_s=450e9, latency_s=33e-6, latency_floor_s=33e-6,
        all_reduce_bytes_per_s=43e9, exchange_latency_s=60e-6,
    )  # fmt: skip
    fabric = worlds.fabric(scale_up=link, scale_out=link)
    for tier in ("auto", "floor"):
        model = collective_model(fabric, tier=tier)  # type: ignore[arg-type]
        assert model.seconds(op("all_reduce", 43e3, 16)) == pytest.approx(34e-6)
    exchange = collective_model(fabric).seconds(op("ep_dispatch", 1.0, 16, tokens=1, top_k=8))
    assert exchange == pytest.approx(60e-6, rel=0.01)


def test_a_mesh_uses_the_links_to_its_peers() -> None:
    """MI300X: 448 GB/s in seven links, so two GPUs reach a seventh, eight all of it."""
    link = mesh().scale_up
    assert reach(link, 2) == pytest.approx(64e9)
    assert reach(link, 8) == pytest.approx(448e9)


def test_the_fastest_protocol_counts() -> None:
    """1 µs + one-shot at 100 GB/s against 5 µs + ring at 200 GB/s, four ranks: 20 KB take 1.6
    against 5.15 µs, 20 MB 601 against 155."""
    ladder = (
        Protocol(base_s=1e-6, per_rank_s=0.0, efficiency=0.5, volume="one_shot"),
        Protocol(base_s=5e-6, per_rank_s=0.0, efficiency=1.0),
    )
    size = np.array([20e3, 20e6])
    found = fastest(ladder, 4, 1.5 * size, 3.0 * size, 200e9)
    assert found == pytest.approx([1.6e-6, 155e-6])


def test_an_engines_kernel_ends_at_its_bounds() -> None:
    """One-shot up to four ranks and 1 MB a rank, two ranks of any size; else the ring's 5 µs."""
    ladder = (
        Protocol(
            base_s=1e-6, per_rank_s=0.0, efficiency=1.0, volume="one_shot", most_ranks=4,
            most_bytes=1e6,
        ),
        Protocol(base_s=5e-6, per_rank_s=0.0, efficiency=1.0),
    )  # fmt: skip

    def took(n: int, size: object) -> object:
        return fastest(ladder, n, 2.0 * (n - 1) / n * np.asarray(size), (n - 1) * size, 1e12)  # type: ignore[operator]

    sizes = np.array([0.3e6, 0.4e6])
    assert took(4, sizes) == pytest.approx([1.9e-6, 5.6e-6])
    assert [took(4, size) for size in sizes] == pytest.approx([1.9e-6, 5.6e-6])
    assert took(2, 3e6) == pytest.approx(4e-6)
    assert took(8, sizes) == pytest.approx(5e-6 + 1.75e-12 * sizes)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "nccl"])
def test_arrays_give_what_numbers_give(engine: str) -> None:
    sizes = np.array([1e3, 1e5, 1e6, 1e9])
    for fabric in FABRICS:
        model = collective_model(fabric, engine)
        for kind in COLLECTIVES:
            for ranks in (2,) if kind == "p2p" else (4, 8, 16):
                table = model.seconds(op(kind, sizes, ranks, tokens=sizes / 1e3, top_k=4))  # type: ignore[arg-type]
                for i, size in enumerate(sizes):
                    single = model.seconds(op(kind, size, ranks, tokens=size / 1e3, top_k=4))  # type: ignore[arg-type]
                    assert single == pytest.approx(table[i])


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(COLLECTIVES)),
    engine=st.sampled_from(["vllm", "sglang", "trtllm", "nccl"]),
    fabric=st.integers(0, 5),
    n_bytes=st.floats(1, 1e9),
    n_ranks=st.sampled_from([2, 4, 8, 16, 64]),
    tokens=st.sampled_from([1, 200, 4096]),
)
def test_a_longer_message_never_takes_less(
    kind: CollectiveKind, engine: str, fabric: int, n_bytes: float, n_ranks: int, tokens: int
) -> None:
    model = collective_model(FABRICS[fabric], engine)
    ranks = 2 if kind == "p2p" else n_ranks
    sizes = n_bytes * np.array([1.0, 1.001, 1.5, 8.0])
    seconds = model.seconds(op(kind, sizes, ranks, tokens=tokens, top_k=8))
    assert np.all(np.isfinite(seconds))
    assert np.all(np.diff(seconds) >= -1e-15)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(set(COLLECTIVES) - {"p2p"})),
    engine=st.sampled_from(["vllm", "sglang", "trtllm", "nccl"]),
    fabric=st.integers(0, 5),
    n_bytes=st.floats(1, 1e9),
    top_k=st.integers(1, 12),
    tokens=st.sampled_from([1, 200, 4096]),
)
def test_more_nodes_never_take_less(
    kind: CollectiveKind, engine: str, fabric: int, n_bytes: float, top_k: int, tokens: int
) -> None:
    """One full domain, then two, four, eight and sixteen."""
    where = FABRICS[fabric]
    model = collective_model(where, engine)
    seconds = [
        model.seconds(op(kind, n_bytes, nodes * where.scale_up.n_gpus, tokens=tokens, top_k=top_k))
        for nodes in (1, 2, 4, 8, 16)
    ]
    assert np.all(np.diff(seconds) >= -1e-15)


def test_a_rack_of_trays_leaves_the_engines_kernel() -> None:
    """SGLang's captured all-reduce of 16 KB on GB300: 3.7 and 4.0 µs on two and four GPUs of a
    tray, 27.8 on eight, 50 on sixteen (silicon database)."""
    rack = next(each for each in FABRICS if each.name == "NVL72-GB300")
    model = collective_model(rack, "sglang")
    for ranks, microseconds in {2: 3.65, 4: 4.0, 8: 27.8, 16: 50.1}.items():
        found = model.seconds(op("all_reduce", 16384.0, ranks)) * 1e6
        assert found == pytest.approx(microseconds, rel=0.12)


@pytest.mark.parametrize(
    ("kind", "element", "published_us"),
    [
        ("ep_dispatch", 1, {16: 118, 32: 155, 64: 173, 128: 192, 256: 194}),
        ("ep_combine", 2, {16: 195, 32: 273, 64: 314, 128: 369, 256: 360}),
    ],
)
def test_exchange_beyond_the_sweep(
    kind: CollectiveKind, element: int, published_us: dict[int, float]
) -> None:
    """DeepEP's own low-latency table (H800 with 400 Gb/s InfiniBand, 128 tokens), to 32 nodes: no
    row of it, nor of more than eight nodes, entered a fit."""
    model = collective_model(nvlink4())
    for ranks, microseconds in published_us.items():
        each = op(kind, 128 * 7168.0 * element, ranks, tokens=128, top_k=8)
        assert model.seconds(each) * 1e6 == pytest.approx(microseconds, rel=0.15)


def test_unmeasured_spans_say_so() -> None:
    model = collective_model(nvlink4())
    assert model.tier == "target"
    near, far = op("all_reduce", 1e6, 8), op("all_reduce", 1e6, 16)
    assert model.interval(far)[1] > model.interval(near)[1]
    assert collective_model(worlds.fabric()).tier == "cross"


def test_a_small_ring_on_a_mesh_runs_over_one_link_and_a_large_one_over_all() -> None:
    """MI300X: 15 µs and 7/4 of the message at 64 GB/s; beyond 4 MB seven links at 0.7."""
    fabric = Catalog.load().fabric("xgmi-mi300x")
    model = collective_model(fabric, "vllm")
    small, large = (
        float(model.seconds(Collective(kind="all_reduce", n_bytes=size, n_ranks=8)))
        for size in (1e6, 100e6)
    )
    assert small == pytest.approx(15e-6 + 1.75e6 / 64e9, rel=0.01)
    assert large == pytest.approx(100e-6 + 175e6 / (0.7 * 448e9), rel=0.01)
    assert model.tier == "cross"
