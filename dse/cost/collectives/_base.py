"""The contract of a collective: which bytes cross which link of the fabric, and how many messages.

A group of ranks spans scale-up domains (`Span`). Libraries hold several protocols for the same
collective (low-latency, bulk; one-shot, two-shot, ring) and run the fastest for the size: the time
is the least of a few straight lines, each a base, a cost per rank, and bytes over bandwidth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dse.hardware.fabric import Fabric, Link
from dse.model.ops import Collective, Num

Volume = Literal["ring", "one_shot"]
LEAST_SHARE = 0.02  # of a link's bandwidth, however many ranks share it
PAIR = 2

# Between domains few clusters are alike: algorithm bandwidth of a large two-node all-reduce is
# 9 GB/s on one A100 cluster (microsoft/vidur, network/a100_dgx), 43 on an H20 cluster (Floor First,
# arXiv:2607.05876) and above 300 where eight rails are tuned. A share between, wide intervals.
NETWORK_SHARE = 0.6
PER_DOMAIN_S = 4e-6  # each further domain lengthens the ring or tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`n` ranks, `inner` of them within one scale-up domain, on `domains` domains."""

    n: int
    inner: int
    domains: int

    @classmethod
    def of(cls, op: Collective, fabric: Fabric) -> "Span":
        """Where the ranks of `op` stand: `stride` apart in rank order, domains filled in turn."""
        size = int(fabric.scale_up.n_gpus)
        inner = max(1, min(op.n_ranks, size // max(op.stride, 1)))
        return cls(n=op.n_ranks, inner=inner, domains=-(-op.n_ranks // inner))

    @property
    def remote(self) -> float:
        """Share of the ranks that stand in other domains."""
        return (self.n - self.inner) / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One straight line: `base_s` plus `per_rank_s` for each rank beyond two, then the bytes of a
    rank over a share of the link: `efficiency` for two ranks, `efficiency_step` more (or less) for
    each doubling, at most one. `one_shot` sends the whole message to every peer.

    An engine runs its own kernels within bounds: up to `most_ranks` (those of one host, which share
    memory handles) and up to `most_bytes` that a rank sends. The latter bounds no pair of ranks:
    two send the same in one shot or two.
    """

    base_s: float
    per_rank_s: float
    efficiency: float
    efficiency_step: float = 0.0
    volume: Volume = "ring"
    most_ranks: int | None = None
    most_bytes: float | None = None

    def seconds(self, n_ranks: int, n_bytes: Num, bytes_per_s: float) -> Num:
        """Seconds in which each of `n_ranks` sends `n_bytes`; infinite out of bounds."""
        if self.most_ranks is not None and n_ranks > self.most_ranks:
            return np.full_like(n_bytes, np.inf, dtype=float)[()]
        share = self.efficiency + self.efficiency_step * np.log2(n_ranks / 2.0)
        rate = bytes_per_s * float(np.clip(share, LEAST_SHARE, 1.0))
        seconds = self.base_s + self.per_rank_s * (n_ranks - 2) + np.divide(n_bytes, rate)
        if self.most_bytes is None or n_ranks <= PAIR:
            return seconds
        return np.where(np.less_equal(n_bytes, self.most_bytes), seconds, np.inf)[()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Constants of one expert-exchange backend, one direction (dispatch or combine).

    Inside a domain it starts in `base_s`. Beyond, it waits `network_s` for the network. The
    low-latency kernels post messages to every expert there, `fan_out_s` times the share of ranks in
    other domains; the normal ones agree on sizes first, `round_s` for each doubling of domains.
    Bytes move at `efficiency` of the scale-up bandwidth and `network_efficiency` of the scale-out
    one. `deduplicates`: one copy per distinct rank, which crosses once to each distinct domain and
    is handed on there; else one copy per chosen expert, sent straight.
    """

    base_s: float
    network_s: float
    fan_out_s: float
    round_s: float
    efficiency: float
    network_efficiency: float
    deduplicates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Everything fitted for one fabric: `ladders` by collective kind (and `library_all_reduce`,
    which groups that span domains fall back to), each the protocols that compete for a size;
    `exchanges` by `ep_dispatch` and `ep_combine`, each the low-latency and the normal backend.
    """

    ladders: Mapping[str, tuple[Protocol, ...]]
    exchanges: Mapping[str, tuple[Exchange, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One collective; `kind` is the kind of `dse.model.ops.Collective` that it times."""

    def seconds(self, op: Collective, fabric: Fabric, constants: Constants) -> Num:
        """Expected seconds of `op` with fitted constants."""
        raise NotImplementedError

    def floor_bytes(self, op: Collective, span: Span) -> tuple[Num, Num]:
        """The fewest bytes a rank can send (scale-up, scale-out) whatever the algorithm."""
        raise NotImplementedError

    def floor_seconds(self, op: Collective, fabric: Fabric) -> Num:
        """What `op` can never undercut: the floor latency of the farthest link, plus the slower of
        the two links' bytes.
        """
        span = Span.of(op, fabric)
        up, out = self.floor_bytes(op, span)
        inner = np.asarray(up, dtype=float) / fabric.scale_up.bytes_per_s
        outer = np.asarray(out, dtype=float) / fabric.scale_out.bytes_per_s
        link = fabric.scale_out if span.domains > 1 else fabric.scale_up
        return link.latency_floor_s + np.maximum(inner, outer)


def reach(link: Link, n_ranks: int) -> float:
    """Bandwidth (B/s) that one of `n_ranks` on a link can use: all of it behind a switch, the links
    to its `n_ranks - 1` peers in a mesh.
    """
    return float(link.bytes_per_s * min(1.0, link.peer_fraction * max(n_ranks - 1, 1)))


def through_port(fabric: Fabric, up: Num, out: Num) -> Num:
    """Bytes on the scale-up link of a GPU that sends `up` inside its domain and `out` beyond: with
    PCIe the network card hangs on the same link.
    """
    return up + out if fabric.kind == "pcie" else up


def crossing(span: Span, fabric: Fabric, inside: Num, out_bytes: Num) -> Num:
    """Seconds of a collective that leaves the domain: a start no shorter than the network's
    latency, then `out_bytes` a rank over its own port.
    """
    start = np.maximum(inside, fabric.scale_out.latency_s + PER_DOMAIN_S * (span.domains - 2))
    return start + np.divide(out_bytes, NETWORK_SHARE * fabric.scale_out.bytes_per_s)


def fastest(
    protocols: Sequence[Protocol], n_ranks: int, ring: Num, one_shot: Num, bytes_per_s: float
) -> Any:
    """Seconds of the fastest protocol for `ring` or `one_shot` bytes sent by each of `n_ranks`."""
    lines = [
        each.seconds(n_ranks, one_shot if each.volume == "one_shot" else ring, bytes_per_s)
        for each in protocols
    ]
    return np.minimum.reduce(np.broadcast_arrays(*lines))
