"""Fits of collectives: worlds whose constants are known, and what held-out rows must reach."""

from dataclasses import replace

import numpy as np
import pytest

from dse.catalog import Catalog
from dse.cost.collectives import Exchange, Protocol
from dse.evidence import silicon
from dse.evidence.calibrate_collectives import trusted
from dse.evidence.collective_rows import (
    EXCHANGES,
    NORMAL,
    ExchangeKind,
    Exchanges,
    Messages,
    crawling,
    engine_messages,
    exchange_rows,
    exchange_tables,
)
from dse.evidence.collective_slices import collective_slices
from dse.evidence.exchange_links import busy, port_bytes, waiting
from dse.evidence.exchange_reports import MULTI_QP, reports
from dse.evidence.fit_exchange import exchange_seconds, fit_exchanges
from dse.evidence.fit_ladder import fit_ladder, ladder_seconds
from dse.evidence.unseen import Unseen
from dse.evidence.validate_exchange import unseen_nodes, unseen_reports, unseen_transfers
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
    """Median within 15% at every count and direction, as each mode is priced: of the normal kernels
    over all rows that agree, those of others too; what leaves its links idle is under-priced."""
    rows = [*unseen_nodes("H100-SXM", nvlink4), *unseen_transfers("H100-SXM", nvlink4)]
    rows += unseen_reports(nvlink4)
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        state = row.state or "low-latency"
        groups.setdefault((state, row.held, row.collective), []).extend(row.priced.error)
    for (state, held, kind), error in groups.items():
        if state in ("low-latency", "consistent"):
            assert np.median(np.abs(error)) < 0.15, (state, held, kind)
        if state == "links idle":
            assert max(error) < -0.3, (held, kind)
    good = {key[1:] for key in groups if key[0] == "consistent"}
    assert good == {(f"{n} nodes", kind) for n in (1, 2, 4, 8) for kind in EXCHANGES}


def test_eight_nodes_wait_for_what_no_kernel_setting_changes(
    installed: None, nvlink4: Fabric
) -> None:
    """The whole calls of eight nodes alone leave the links idle; their combine then waits before a
    transfer that fills the port, as DeepEP publishes."""
    table = exchange_tables(NORMAL, "H100-SXM")[-1]
    for kind in EXCHANGES:
        rows = exchange_rows(table, kind)
        assert set(rows.nodes[waiting(kind, rows, nvlink4)]) == {8.0}
        assert set(trusted(table, kind, nvlink4).nodes) == {1.0, 2.0, 4.0}
    sent = exchange_rows(table, "ep_combine", waits=False)
    sent = sent.take((sent.nodes == 8) & (sent.tokens == 4096))
    port = port_bytes("ep_combine", sent, nvlink4) / sent.seconds
    assert port == pytest.approx(46e9, rel=0.02)
    published = next(
        each for each in reports()
        if (each.source, each.kind, each.rows.nodes[0]) == (MULTI_QP, "ep_combine", 8)
    )  # fmt: skip
    h800 = Catalog.load().fabric("NVLink4-8-H800")
    there = port_bytes("ep_combine", published.rows, h800) / published.rows.seconds
    assert there == pytest.approx(50e9 * 7 / 8)


def test_a_sweep_that_leaves_its_links_idle_is_set_aside(nvlink4: Fabric) -> None:
    """Two nodes at 0.6 of the port's rate stay, four at 0.4 go; one node is never judged."""
    nodes = np.array([1.0, 2.0, 4.0])
    rows = Exchanges(
        nodes=nodes, tokens=np.full(3, 4096.0), copy_bytes=np.full(3, 1e8),
        top_k=np.full(3, 8.0), seconds=np.ones(3),
    )  # fmt: skip
    share = np.array([0.1, 0.6, 0.4])
    rows = replace(rows, seconds=busy("ep_dispatch", rows, nvlink4) / share)
    assert busy("ep_dispatch", rows, nvlink4) == pytest.approx(share)
    assert list(waiting("ep_dispatch", rows, nvlink4)) == [False, False, True]


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
