"""The least that a collective can take on a fabric: bytes of each link level, and one latency.

A group of ranks spans `domains` scale-up domains of `peers` ranks each. What must cross is counted
per GPU and one direction; the two levels may work at once, so the slower one counts.
"""

from dataclasses import dataclass

from dse.cost.destinations import distinct
from dse.hardware.fabric import Fabric, Link
from dse.model.ops import Collective, Num

EXCHANGES = ("ep_dispatch", "ep_combine")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFloor:
    """Bytes that one rank sends, the floor of their time, and that of the message itself."""

    n_bytes: Num
    bytes_s: Num
    latency_s: float


def network_floor(op: Collective, fabric: Fabric) -> NetworkFloor:
    """The floor of one collective.

    Ring all-reduce moves 2(n−1)/n of the message over each link (Patarasuk & Yuan 2009), gather and
    scatter half of it; a dispatch sends one copy per distinct remote destination. Measured
    constants of the link win over the model.
    """
    peers, domains = spans(op, fabric)
    link = fabric.scale_out if domains > 1 else fabric.scale_up
    up, out = _shares(op, peers, domains)
    slower = max(up / _reach(fabric.scale_up, peers), out / fabric.scale_out.bytes_per_s)
    bytes_s = op.n_bytes * slower
    latency_s = link.latency_floor_s
    if op.kind == "all_reduce" and link.all_reduce_bytes_per_s is not None:
        bytes_s = op.n_bytes / link.all_reduce_bytes_per_s
    if op.kind in EXCHANGES and link.exchange_latency_s is not None:
        latency_s = link.exchange_latency_s
    return NetworkFloor(n_bytes=op.n_bytes * (up + out), bytes_s=bytes_s, latency_s=latency_s)


def spans(op: Collective, fabric: Fabric) -> tuple[int, int]:
    """`(peers, domains)`: ranks of the group in one scale-up domain, and domains it spans."""
    peers = max(1, min(op.n_ranks, fabric.scale_up.n_gpus // op.stride))
    return peers, -(-op.n_ranks // peers)


def _reach(link: Link, peers: int) -> float:
    """Bytes/s of one GPU towards `peers − 1` others: in a mesh each pair has its own share."""
    return link.bytes_per_s * min(1.0, link.peer_fraction * max(1, peers - 1))


def _shares(op: Collective, peers: int, domains: int) -> tuple[float, float]:
    """Share of the message that one rank moves on the scale-up and on the scale-out level."""
    if op.kind in EXCHANGES:
        hit = distinct(op.n_ranks, op.top_k, op.groups, op.top_groups) / op.n_ranks
        domain_hit = distinct(domains, op.top_k, op.groups, op.top_groups) / domains
        return (peers - 1) * hit, (domains - 1) * domain_hit
    if op.kind == "p2p":
        return (1.0, 0.0) if domains == 1 else (0.0, 1.0)
    passes = 2.0 if op.kind == "all_reduce" else 1.0
    up = passes * (peers - 1) / peers
    out = passes * (domains - 1) / domains / peers
    return up, out
