"""What a context is asked with: lengths, arrivals and the number of requests, made a workload."""

from __future__ import annotations

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

    def workload(self, isl_tokens: int, osl_tokens: int, load: Load) -> Workload:
        """Return the workload of one context under one load."""
        arrivals = self._arrivals(load)
        file = self.file
        return Workload(
            arrivals=arrivals,
            n_requests=self._n_requests(load),
            isl=self._lengths(isl_tokens),
            osl=self._lengths(osl_tokens),
            shared_prefix_tokens=file.shared_prefix_tokens,
            n_prefixes=file.n_prefixes,
            sessions=file.sessions,
            stopping=file.stopping,
        )

    def _n_requests(self, load: Load) -> int:
        if self.file.requests is not None:
            return self.file.requests.number(load.concurrency)
        if self.trace is None:
            raise StudyError("the workload does not say how many requests a run has")
        return len(self.trace.rows)

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
