"""Sums over the steps of a run: what both paths of the simulator report, and no more."""

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dse.cost.step import StepTime
from dse.cost.tally import Tally

if TYPE_CHECKING:
    from dse.sim.replica import Replica, Step

# Gaps are counted by the leading bits of their binary form: 256 bins an octave (0.4% wide) from
# 2^-20 s (1 µs) on; bin 0 holds what is shorter, tokens of one step included.
GAP_SHIFT = 44
GAP_BASE = (1023 - 20) << 8
GAP_BINS = 32 << 8


def gap_bin(seconds: float) -> int:
    """The bin of a gap between tokens."""
    if seconds <= 0.0:
        return 0
    bits: int = struct.unpack("<q", struct.pack("<d", seconds))[0] >> GAP_SHIFT
    return min(max(bits - GAP_BASE, 0), GAP_BINS - 1)


def gap_seconds(index: int) -> float:
    """The middle of a bin in seconds."""
    if index == 0:
        return 0.0
    low, high = ((index + step + GAP_BASE) << GAP_SHIFT for step in (0, 1))
    ends = struct.unpack("<2d", struct.pack("<2q", low, high))
    return float(sum(ends) / 2.0)


@dataclass(slots=True, kw_only=True)
class Totals:
    """Sums over all steps of one pool.

    `busy_s` is the occupancy of the steps, `host_s` the host's share of it. `seqs_s` and `kv_s` are
    integrals over busy time of the requests in the batch and of the units in use, of all ranks;
    `kv_peak` is the most units in use on one rank.
    """

    tally: Tally
    n_steps: int = 0
    busy_s: float = 0.0
    host_s: float = 0.0
    seqs_s: float = 0.0
    kv_s: float = 0.0
    kv_peak: int = 0
    n_decode_tokens: int = 0
    n_prefill_tokens: int = 0
    gaps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(GAP_BINS, dtype=np.int64))

    def add_step(self, replica: "Replica", step: "Step", time: StepTime) -> None:
        """Count a step as it begins."""
        cost, m_group, seconds = replica.cost, 0, time.occupancy_s
        for rank, load in zip(replica.ranks, step.loads, strict=True):
            n_seqs = load.n_decode + len(load.chunks)
            new = sum(q for q, _ in load.chunks)
            used = rank.kv.used_units
            self.seqs_s += n_seqs * seconds
            self.kv_s += used * seconds
            self.kv_peak = max(self.kv_peak, used)
            self.n_decode_tokens += load.n_decode
            self.n_prefill_tokens += new
            m_group += cost.tokens(load)
            self.tally.add(cost, load)
        self.tally.add_group(cost, m_group)
        self.n_steps += 1
        self.busy_s += seconds
        self.host_s += time.host_s

    def add_gap(self, seconds: float, count: int) -> None:
        """Count gaps between consecutive tokens of a request."""
        if count:
            self.gaps[gap_bin(seconds)] += count
