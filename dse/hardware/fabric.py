"""How GPUs are joined: a scale-up domain and a scale-out network."""

from dataclasses import dataclass, field
from typing import Annotated

from dse.base.bounds import require_positive
from dse.base.keys import Key
from dse.base.units import BytesPerSecond, Count, Fraction, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One level of a fabric.

    `bytes_per_s` is per GPU and one direction. `latency_s` is what a small collective message
    typically costs, `latency_floor_s` what it can never undercut (walls use the floor).
    `peer_fraction` is the share of `bytes_per_s` that one pair of GPUs reaches: 1 behind a switch,
    1/7 in an eight-GPU mesh. The two optional fields are measured constants of a cluster that win
    over the model: all-reduce *algorithm* bandwidth (message ÷ time), and the latency of one
    expert dispatch or combine.
    """

    n_gpus: Annotated[Count, Key("gpus")]
    bytes_per_s: Annotated[BytesPerSecond, Key("bandwidth")]
    latency_s: Seconds
    latency_floor_s: Seconds
    peer_fraction: Fraction = 1.0
    all_reduce_bytes_per_s: Annotated[BytesPerSecond | None, Key("all_reduce_bandwidth")] = None
    exchange_latency_s: Seconds | None = None

    def __post_init__(self) -> None:
        """Refuse what no floor can divide by."""
        names = ("n_gpus", "bytes_per_s", "peer_fraction", "all_reduce_bytes_per_s")
        require_positive(self, *names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A scale-up domain (`scale_up.n_gpus` GPUs that share NVLink, xGMI or PCIe) and the network
    that joins such domains (`scale_out.n_gpus` is the largest cluster it serves).
    """

    name: str = field(compare=False)
    kind: str
    scale_up: Link
    scale_out: Link
    source: str = field(compare=False)

    def crosses(self, n_ranks: int) -> bool:
        """Whether a group of `n_ranks` neighbouring ranks leaves the scale-up domain."""
        return n_ranks > self.scale_up.n_gpus

    def domains(self, n_ranks: int) -> int:
        """Scale-up domains that `n_ranks` neighbouring ranks span."""
        return -(-n_ranks // self.scale_up.n_gpus)
