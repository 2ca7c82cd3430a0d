"""What a run asks in sums: of the very requests that the simulator gets, replicate by replicate."""

from dataclasses import dataclass, replace

import numpy as np

from dse.search.envelope import Array
from dse.serving.workload import Workload
from dse.sim import Requests, realised_requests
from dse.sim.sketch import stride_of


@dataclass(frozen=True, kw_only=True)
class Offered:
    """The requests of one replicate.

    `isl` and `osl` are tokens a request, `new` the prompt tokens that no cache can hold, `roots`
    which first turn each descends from, `arrival_s` when it arrives (NaN: it waits for the turn
    before), `concurrency` that of a closed loop, else 0. `is_plain`: no conversations, no recorded
    content. `means_cover_all`: latencies are measured over every request.
    """

    isl: Array
    osl: Array
    new: Array
    roots: Array
    arrival_s: Array
    concurrency: int
    is_plain: bool
    means_cover_all: bool

    @classmethod
    def of(cls, workload: Workload, seed: int) -> "Offered | None":
        """The requests of replicate `seed`; None where a run goes on until it is stable, as nobody
        knows their number.
        """
        if workload.stopping.max_requests is not None:
            return None
        found = realised_requests(workload, seed)
        isl = found.isl_tokens.astype(float)
        return cls(
            isl=isl,
            osl=found.osl_tokens.astype(float),
            new=_new(found, isl),
            roots=(np.cumsum(found.follows < 0) - 1).astype(float),
            arrival_s=found.arrival_s,
            concurrency=found.concurrency,
            is_plain=not found.hash_ids and bool((found.session < 0).all()),
            means_cover_all=not workload.is_steady,
        )

    def part(self, copies: int) -> "Offered":
        """What one of `copies` equal parts of a deployment is asked (see `dse.sim.simulate`)."""
        if copies == 1:
            return self
        kept = self.roots % copies == 0
        return replace(
            self,
            isl=self.isl[kept],
            osl=self.osl[kept],
            new=self.new[kept],
            roots=self.roots[kept],
            arrival_s=self.arrival_s[kept],
            concurrency=self.concurrency // copies,
        )

    @property
    def size(self) -> int:
        """Numbers of requests that it holds."""
        return self.n

    @property
    def n(self) -> int:
        """Requests."""
        return len(self.isl)

    @property
    def last_s(self) -> float:
        """Seconds from the first arrival to the last that does not wait for an answer."""
        return float(np.nanmax(self.arrival_s) - np.nanmin(self.arrival_s))

    def decode_steps(self, tokens_per_step: int) -> Array:
        """Steps in which each request decodes, at least."""
        return np.ceil((self.osl - 1.0) / tokens_per_step)

    def context_sum(self, tokens_per_step: int) -> float:
        """Σ over decoding requests and steps of the context, in tokens, at least."""
        steps = self.decode_steps(tokens_per_step)
        grown = steps * (steps + 1.0) / 2.0 if tokens_per_step == 1 else steps
        return float((steps * self.isl + grown).sum())

    def pairs(self) -> float:
        """Causal (query, key) pairs of the prompts."""
        return float((self.isl**2 - (self.isl - self.new) ** 2).sum() / 2.0)


def attainment_at_most(good: float, n: int) -> float:
    """The attainment that is read of `n` requests of which `good` meet the SLO, at most: of long
    runs every k-th is kept, and those may be the good ones.
    """
    return min(1.0, good / _n_kept(n))


def may_be_late(n: int, attainment: float) -> int:
    """How many of `n` requests may miss an SLO that is kept: see `attainment_at_most`."""
    return int(np.floor(n - attainment * _n_kept(n) + 1e-9))


def _n_kept(n: int) -> int:
    return -(-n // stride_of(n))


def _new(requests: Requests, isl: Array) -> Array:
    if requests.hash_ids or bool((requests.session >= 0).any()):
        return np.ones_like(isl)
    return np.maximum(isl - requests.prefix_tokens, 1.0)
