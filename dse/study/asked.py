"""What a context is asked with: lengths, arrivals and the number of requests, made a workload."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dse.base.errors import StudyError
from dse.serving.arrivals import Arrivals, ClosedLoop, ConstantRate, Gamma, Poisson, Trace
from dse.serving.lengths import Constant, Lengths, Lognormal, Uniform
from dse.serving.workload import Workload
from dse.study.grammar import GammaArrivals, LognormalLengths, UniformLengths, WorkloadFile

__all__ = ["Asked", "Load"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a whole deployment is offered: requests in flight, or a rate, or neither."""

    concurrency: int | None = None
    req_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The part of a workload that all points of a study share; `trace` brings its own requests."""

    file: WorkloadFile
    trace: Trace | None = field(default=None, repr=False)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest length as a multiple of the context's; infinite if unbounded.

        A trace, and the growing prompts of a session, have lengths of their own.
        """
        if self.trace is not None:
            return 0.0, math.inf
        lengths = self.file.lengths
        if isinstance(lengths, LognormalLengths):
            return 0.0, math.inf
        low, high = lengths.uniform if isinstance(lengths, UniformLengths) else (1.0, 1.0)
        return low, math.inf if self.file.sessions else high

    def workload(self, isl_tokens: int, osl_tokens: int, load: Load) -> Workload:
        """Return the workload of one context under one load."""
        arrivals, file = self._arrivals(load), self.file
        nominal = (isl_tokens, osl_tokens)
        isl, osl = (None, None) if self.trace else map(self._lengths, nominal)
        return Workload(
            arrivals=arrivals,
            n_requests=self._n_requests(load),
            isl=isl,
            osl=osl,
            shared_prefix_tokens=file.shared_prefix_tokens,
            n_prefixes=file.n_prefixes,
            sessions=file.sessions,
            stopping=file.stopping,
        )

    def _n_requests(self, load: Load) -> int:
        asked = self.file.requests
        if self.trace is not None:
            recorded = len(self.trace.rows)
            return min(asked.number(None), recorded) if asked is not None else recorded
        if asked is None:
            raise StudyError("the workload does not say how many requests a run has")
        return asked.number(load.concurrency)

    def _arrivals(self, load: Load) -> Arrivals:
        if self.trace is not None:
            return self.trace
        if load.concurrency is not None:
            return ClosedLoop(concurrency=load.concurrency)
        if load.req_per_s is None:
            raise StudyError("a workload needs a concurrency or a rate")
        kind = self.file.arrivals
        if isinstance(kind, GammaArrivals):
            return Gamma(req_per_s=load.req_per_s, cv=kind.gamma)
        return (Poisson if kind == "poisson" else ConstantRate)(req_per_s=load.req_per_s)

    def _lengths(self, nominal: int) -> Lengths:
        spread = self.file.lengths
        if isinstance(spread, UniformLengths):
            low, high = (max(1, round(nominal * factor)) for factor in spread.uniform)
            return Uniform(low_tokens=low, high_tokens=high)
        if isinstance(spread, LognormalLengths):
            return Lognormal(mean_tokens=nominal, cv=spread.lognormal)
        return Constant(n_tokens=nominal)
