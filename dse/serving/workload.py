"""What is asked of a deployment: lengths, arrivals, shared prefixes, and how long a run goes on."""

from dataclasses import dataclass
from typing import Annotated, Literal

from dse.base.errors import UserError
from dse.base.units import Count, Fraction, Seconds, Tokens
from dse.serving.arrivals import ARRIVALS, Arrivals, Trace
from dse.serving.lengths import LENGTHS, Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Conversations: each has `turns` turns, and the next is asked `think_s` after an answer.

    The prompt of a turn is everything said before and ISL new tokens.
    """

    turns: Annotated[Lengths, LENGTHS]
    think_s: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """How long a run goes on and which requests count.

    With `max_requests` the run doubles from `n_requests` on until the p99 of TTFT and of TPOT
    change by less than `tolerance` between halves, or the cap is reached. `measure` says which
    requests the percentiles cover: `all`, or `steady` (warm-up cut by MSER-5, and what arrives
    while a closed loop drains), or `auto`: steady for rates, all for closed loops, jobs and traces.
    """

    max_requests: Count | None = None
    tolerance: Fraction = 0.05
    measure: Literal["auto", "all", "steady"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`n_requests` requests. `isl` is the prompt with the shared prefix in it.

    The first `shared_prefix_tokens` of each prompt are one of `n_prefixes` equal texts, taken in
    turn. A trace replaces `isl` and `osl`.
    """

    arrivals: Annotated[Arrivals, ARRIVALS]
    n_requests: Count
    isl: Annotated[Lengths, LENGTHS] | None = None
    osl: Annotated[Lengths, LENGTHS] | None = None
    shared_prefix_tokens: Tokens = 0
    n_prefixes: Count = 1
    sessions: Sessions | None = None
    stopping: Stopping = Stopping()

    def __post_init__(self) -> None:
        if self.n_requests < 1:
            raise UserError(f"n_requests is {self.n_requests}", "simulate at least one request")
        if self.n_prefixes < 1:
            raise UserError(f"n_prefixes is {self.n_prefixes}", "give at least one")
        if not isinstance(self.arrivals, Trace) and (self.isl is None or self.osl is None):
            raise UserError("isl or osl is missing", "give both, or a trace that brings its own")

    @property
    def is_steady(self) -> bool:
        """Whether percentiles leave out warm-up and drain."""
        if self.stopping.measure != "auto":
            return self.stopping.measure == "steady"
        return hasattr(self.arrivals, "req_per_s")
