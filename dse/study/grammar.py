"""What a study's YAML may say: the records that it is read into, and their JSON Schema's source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from dse.base.errors import StudyError
from dse.base.units import CountUnit, Percent, ReqPerSecond, Tokens
from dse.serving.slo import SLO
from dse.serving.workload import Sessions, Stopping
from dse.space.axes import Axis, Forms, Numbers
from dse.space.grammar import SpaceFile
from dse.space.keyed import Keyed
from dse.study.price import PRICE, Price

__all__ = [
    "Arrivals",
    "ConcurrencyLoad",
    "GammaArrivals",
    "LognormalLengths",
    "RateLoad",
    "Requests",
    "Search",
    "StudyFile",
    "Target",
    "TraceLoad",
    "UniformLengths",
    "WorkloadFile",
]

CLOSED_LOOP, MAX_GOODPUT = "closed_loop", "max_goodput"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformLengths:
    """`{uniform: [0.8, 1.0]}`: evenly between these multiples of the context's ISL and OSL."""

    uniform: tuple[float, float]

    def __post_init__(self) -> None:
        low, high = self.uniform
        if not 0 < low <= high:
            raise StudyError(f"uniform from {low} to {high}", "give 0 < low <= high, as [0.8, 1.0]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalLengths:
    """`{lognormal: 0.8}`: log-normal with the context's mean and this coefficient of variation."""

    lognormal: float

    def __post_init__(self) -> None:
        if not self.lognormal > 0:
            raise StudyError(f"lognormal {self.lognormal}", "give a positive variation, as 0.8")


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaArrivals:
    """`{gamma: 2.0}`: gaps of this coefficient of variation (1 is Poisson, above bursty)."""

    gamma: float

    def __post_init__(self) -> None:
        if not self.gamma > 0:
            raise StudyError(f"gamma {self.gamma}", "give a positive variation, as 2.0")


@dataclass(frozen=True, slots=True)
class Requests:
    """How many requests a run has: `count`, or `count` for each request in flight."""

    count: int
    per_concurrency: bool = False

    def number(self, concurrency: int | None) -> int:
        """Return the number of requests at a concurrency (None where none is set)."""
        if not self.per_concurrency:
            return self.count
        if concurrency is None:
            raise StudyError("requests per concurrency need a load that sets one", "give a count")
        return self.count * concurrency


@dataclass(frozen=True, slots=True)
class _RequestsForm:
    """Reads `10 x concurrency`, or a count."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Read text or a number."""
        return {
            "type": "function-plain",
            "function": {"type": "no-info", "function": _requests},
            "json_schema_input_schema": {
                "type": "union",
                "choices": [{"type": "int"}, {"type": "str"}],
            },
        }


def _requests(value: object) -> Requests:
    """Return what `10 x concurrency` or a count means."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+)\s*[x×*]\s*concurrency", value)):
        found = Requests(int(match[1]), per_concurrency=True)
    else:
        found = Requests(CountUnit().read(value))
    if found.count < 1:
        raise StudyError(f"{value!r} is no request at all", "ask for 1 or more")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFile:
    """What each context is asked with: the spread of lengths, how many requests, and when.

    `arrivals` matter to loads that set a rate. The first `shared_prefix` tokens of a prompt are one
    of `n_prefixes` texts.
    """

    requests: Annotated[Requests, _RequestsForm()] | None = None
    lengths: Annotated[
        UniformLengths | LognormalLengths | Literal["constant"],
        Keyed((("uniform", UniformLengths), ("lognormal", LognormalLengths)), ("constant",)),
    ] = "constant"
    arrivals: Annotated[
        GammaArrivals | Literal["poisson", "constant"],
        Keyed((("gamma", GammaArrivals),), ("poisson", "constant")),
    ] = "poisson"
    shared_prefix_tokens: Tokens = 0
    n_prefixes: int = 1
    sessions: Sessions | None = None
    stopping: Stopping = field(default_factory=Stopping)


Arrivals = GammaArrivals | Literal["poisson", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyLoad:
    """`{concurrency: [16, 64]}`: this many requests in flight in the whole deployment."""

    concurrency: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLoad:
    """`{req_per_s: [1, 2, 4]}`: requests per second that the whole deployment is offered."""

    req_per_s: Annotated[Axis, Forms(float)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLoad:
    """`{trace: FILE}`: the arrivals and lengths of a recorded trace."""

    trace: str


LoadForm = Annotated[
    ConcurrencyLoad | RateLoad | TraceLoad | Literal["closed_loop", "max_goodput"],
    Keyed(
        (("concurrency", ConcurrencyLoad), ("req_per_s", RateLoad), ("trace", TraceLoad)),
        (CLOSED_LOOP, MAX_GOODPUT),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The load that the purchase must carry; GPUs and nodes are answered for it."""

    req_per_s: ReqPerSecond | float


SAMPLED = 1000
"""Points that a sampler simulates where its study does not say how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How survivors are searched.

    `seeds` replicates a point; `tolerance` 0 asks for the exact front; `budget` is the most points
    that are simulated (for each value of `compare_by`): without one `bound` goes on until the front
    is proved, and `optuna` to 1,000; a round of `round` points does not depend on the workers.
    """

    method: Literal["bound", "exhaustive", "optuna"] = "bound"
    seeds: int = 3
    tolerance: Percent = 0.02
    budget: int | None = None
    round: int = 64

    def __post_init__(self) -> None:
        for name in ("seeds", "budget", "round"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise StudyError(f"{name} is {value}", "give 1 or more")
        if self.budget is not None and self.method == "exhaustive":
            raise StudyError(
                "budget: exhaustive simulates every survivor",
                "leave budget out (--set search.budget=null), or take method bound or optuna",
            )

    @property
    def most(self) -> int | None:
        """The most points that are simulated; None: as many as a proof takes."""
        return SAMPLED if self.budget is None and self.method == "optuna" else self.budget


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFile:
    """A question asked of a space.

    `compare_by` is a column that every point has: `gpu`, `branch`, `engine`, `model`, `weights`, a
    degree such as `tp`, or a fact that the space varies. Each of its values is searched for a front
    of its own, with a `budget` of its own, and the report sets them side by side; without it, GPUs.
    """

    question: str
    space: str | SpaceFile
    objectives: tuple[str, ...]
    load: LoadForm
    workload: WorkloadFile = field(default_factory=WorkloadFile)
    slo: SLO | None = None
    constraints: tuple[str, ...] = ()
    screens: tuple[str, ...] = ()
    target: Target | None = None
    price: Mapping[str, Annotated[Price, PRICE]] = field(default_factory=dict)
    compare_by: str | None = None
    search: Search = field(default_factory=Search)
    catalog: tuple[str, ...] = ()
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    scenarios: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
