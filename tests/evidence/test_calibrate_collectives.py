"""Fits of collectives: worlds whose constants are known, and what held-out rows must reach."""

import numpy as np
import pytest

from dse.catalog import Catalog
from dse.cost.collectives import Exchange, Protocol
from dse.evidence import silicon
from dse.evidence.collective_rows import (
    EXCHANGES,
    ExchangeKind,
    Exchanges,
    Messages,
    crawling,
    engine_messages,
)
from dse.evidence.collective_slices import collective_slices
from dse.evidence.fit_exchange import exchange_seconds, fit_exchanges
from dse.evidence.fit_ladder import fit_ladder, ladder_seconds
from dse.evidence.validate_collectives import Unseen, unseen_nodes
from dse.hardware import Fabric


@pytest.fixture(scope="module")
def nvlink4() -> Fabric:
    return Catalog.load().fabric("NVLink4-8")


@pytest.fixture(scope="module")
def installed() -> None:
    if silicon.root() is None:
        pytest.skip("the silicon database (extra `silicon`) is not installed")


def messages_of(ladder: tuple[Protocol, ...], counts: tuple[int, ...]) -> Messages:
    """What `ladder` takes on 100 GB/s for 256 B to 512 MB."""
    size = np.tile(2.0 ** np.arange(8, 30), len(counts))
    ranks = np.repeat(counts, 22)
    blank = Messages(kind="all_reduce", size=size, ranks=ranks, seconds=np.ones(len(size)))
    seconds = ladder_seconds(ladder, blank, 1e11)
    return Messages(kind="all_reduce", size=size, ranks=ranks, seconds=seconds)


def test_a_ladder_recovers_two_protocols() -> None:
    """5 µs plus a tenth of 100 GB/s, or 20 µs plus 80% of it: within 3% at every size."""
    truth = (
        Protocol(base_s=5e-6, per_rank_s=0.0, efficiency=0.1),
        Protocol(base_s=20e-6, per_rank_s=0.0, efficiency=0.8),
    )
    messages = messages_of(truth, (2, 4, 8))
    ladder = fit_ladder(messages, 1e11, custom=False)
    error = np.abs(ladder_seconds(ladder, messages, 1e11) / messages.seconds - 1.0)
    assert error.max() < 0.03
    assert not crawling(messages, 1e11).any()


def test_bounds_of_an_engines_kernels_are_found() -> None:
    """A one-shot kernel of one tray (four ranks) up to 1 MiB a rank, a library beyond both."""
    truth = (
        Protocol(
            base_s=4e-6, per_rank_s=0.1e-6, efficiency=0.8, volume="one_shot",
            most_ranks=4, most_bytes=2.0**20,
        ),
        Protocol(base_s=25e-6, per_rank_s=1.5e-6, efficiency=0.7),
    )  # fmt: skip
    messages = messages_of(truth, (2, 4, 8, 16))
    ladder = fit_ladder(messages, 1e11, custom=True)
    assert ladder[0].most_ranks == 4
    assert ladder[0].most_bytes == 2.0**20
    error = np.abs(ladder_seconds(ladder, messages, 1e11) / messages.seconds - 1.0)
    assert np.median(error) < 0.02
    assert error.max() < 0.15


def test_a_host_without_peer_access_is_set_aside() -> None:
    size, ranks = np.array([2.0**26] * 4), np.array([2, 2, 8, 8])
    ring = 2.0 * (ranks - 1) / ranks * size
    seconds = ring / np.array([5e10, 5e10, 1e9, 1e9])
    messages = Messages(kind="all_reduce", size=size, ranks=ranks, seconds=seconds)
    assert crawling(messages, 1e11).tolist() == [False, False, True, True]


def exchange_world(
    fabric: Fabric,
) -> tuple[dict[ExchangeKind, Exchange], dict[ExchangeKind, Exchanges]]:
    """Low-latency rows of 2 to 256 tokens on 1, 2, 4 and 8 nodes under known constants."""
    dispatch = Exchange(
        base_s=14e-6, network_s=1e-6, fan_out_s=13e-6, round_s=0.0, efficiency=0.55,
        network_efficiency=0.9, deduplicates=False,
    )  # fmt: skip
    truth: dict[ExchangeKind, Exchange] = {"ep_dispatch": dispatch, "ep_combine": dispatch}
    nodes, tokens = np.repeat([1.0, 2.0, 4.0, 8.0], 8), np.tile(2.0 ** np.arange(1, 9), 4)
    rows: dict[ExchangeKind, Exchanges] = {}
    for kind, element in zip(EXCHANGES, (1.0, 2.0), strict=True):
        blank = Exchanges(
            nodes=nodes, tokens=tokens, copy_bytes=tokens * 7168 * element,
            top_k=np.full(32, 8.0), seconds=np.ones(32),
        )  # fmt: skip
        took = exchange_seconds(kind, truth[kind], blank, fabric)
        rows[kind] = Exchanges(
            nodes=nodes, tokens=tokens, copy_bytes=blank.copy_bytes, top_k=blank.top_k, seconds=took
        )
    return truth, rows


def test_an_exchange_recovers_its_constants(nvlink4: Fabric) -> None:
    truth, rows = exchange_world(nvlink4)
    found = fit_exchanges(rows, nvlink4)
    for kind in EXCHANGES:
        assert found[kind].base_s == pytest.approx(truth[kind].base_s, rel=0.03)
        assert found[kind].efficiency == pytest.approx(0.55, rel=0.03)
        assert found[kind].network_efficiency == pytest.approx(0.9, rel=0.03)


@pytest.mark.parametrize("held", [1, 2, 4, 8])
def test_a_node_count_that_was_not_seen_is_predicted(nvlink4: Fabric, held: int) -> None:
    _, rows = exchange_world(nvlink4)
    found = fit_exchanges({k: each.take(each.nodes != held) for k, each in rows.items()}, nvlink4)
    for kind in EXCHANGES:
        hidden = rows[kind].take(rows[kind].nodes == held)
        ratio = exchange_seconds(kind, found[kind], hidden, nvlink4) / hidden.seconds
        assert np.median(np.abs(ratio - 1.0)) < 0.1


def test_unseen_node_counts_of_deepep_are_met(installed: None, nvlink4: Fabric) -> None:
    """Median within 15% at every count, as each mode is priced; the normal kernels' eight nodes
    apart, which contradict what their authors publish."""
    seen = 0
    for row in unseen_nodes("H100-SXM", nvlink4):
        if row.engine == "deepep normal" and row.held == "8 nodes":
            continue
        seen += 1
        assert np.median(np.abs(row.priced.error)) < 0.15, (row.collective, row.engine, row.held)
    assert seen == 14


def test_small_all_reduces_within_and_beyond_a_tray(installed: None) -> None:
    """SGLang on GB300, every second size held out: each of 2, 4 and 8 ranks within 15%."""
    rate = Catalog.load().fabric("NVL72-GB300").scale_up.bytes_per_s
    found = silicon.tables("custom_allreduce")
    table = next(each for each in found if (each.gpu, each.engine) == ("GB300", "sglang"))
    messages = engine_messages(table)
    hidden = np.isin(messages.size, np.unique(messages.size)[1::2])
    ladder = fit_ladder(messages.take(~hidden), rate, custom=True)
    error = np.abs(ladder_seconds(ladder, messages, rate) / messages.seconds - 1.0)
    for ranks in (2, 4, 8):
        small = hidden & (messages.size <= 2**20) & (messages.ranks == ranks)
        assert np.median(error[small]) < 0.15


def unseen_rows(collective: str, **more: object) -> Unseen:
    return Unseen(
        gpu="GB300", collective=collective, engine="vllm", held="sizes",
        size=np.array([1e3, 1e6, 1e8]), ranks=np.array([2, 16, 4]),
        measured_s=np.array([1e-5, 2e-5, 1e-3]), predicted_s=np.array([1.1e-5, 1e-5, 1e-3]),
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_slices_by_hand() -> None:
    """10% high, half, exact: median 10%, a third outside; only the first is small on 2-8 ranks."""
    found = {(s["slice"], s["metric"]): s for s in collective_slices([unseen_rows("all_reduce")])}
    whole = found["all_reduce: GB300 vllm", "collective_s"]
    assert whole["n"] == 3
    assert whole["median_ape"] == pytest.approx(0.1)
    assert whole["mape"] == pytest.approx(0.2)
    assert whole["coverage_80"] == pytest.approx(2 / 3)
    small = found["family=all_reduce", "collective_s, small"]
    assert (small["n"], small["bias"]) == (1, pytest.approx(0.1))


def test_an_exchange_is_judged_by_the_mode_that_is_priced() -> None:
    row = unseen_rows("ep_dispatch", tokens=np.array([1.0, 256.0, 512.0]))
    assert len(row.priced.error) == 1  # no low-latency engine: beyond 256 tokens
    found = list(collective_slices([row]))
    assert [each["n"] for each in found] == [3, 1]
