"""A step's work as terms on the resources of a GPU and a fabric, and the least time that it takes.

Terms on one resource add; resources may overlap, so a step takes at least `t_opt` = max and,
without any overlap, `t_sum`. Arrays broadcast.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dse.cost.lower import Counted
from dse.cost.network import network_floor
from dse.cost.work import Work, work
from dse.hardware.fabric import Fabric
from dse.hardware.gpu import GPU
from dse.model.ops import Collective, Elementwise, Gemm, Num, Op

Resource = Literal["hbm", "flop", "sfu", "network_bytes", "network_messages"]
UNITS: dict[str, str] = {
    "hbm": "B",
    "flop": "FLOP",
    "sfu": "op",
    "network_bytes": "B",
    "network_messages": "message",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """`amount` of a resource (B, FLOP, op, messages) and its `seconds` at the peak rate."""

    resource: Resource
    name: str
    amount: Num
    seconds: Num

    @property
    def unit(self) -> str:
        """The unit of `amount`."""
        return UNITS[self.resource]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFloor:
    """One step over all pipeline stages, in seconds; `stages` has the floor of each by itself."""

    terms: tuple[Term, ...]
    stages: tuple["StepFloor", ...] = field(default=(), repr=False)

    def seconds(self, *resources: Resource) -> Num:
        """Seconds of all terms on these resources."""
        return sum(term.seconds for term in self.terms if term.resource in resources)

    @property
    def t_hbm_s(self) -> Num:
        """HBM traffic."""
        return self.seconds("hbm")

    @property
    def t_flop_s(self) -> Num:
        """Arithmetic: tensor cores, or the exponentials where those take longer."""
        return np.maximum(self.seconds("flop"), self.seconds("sfu"))

    @property
    def t_net_s(self) -> Num:
        """Network bytes and messages."""
        return self.seconds("network_bytes", "network_messages")

    @property
    def t_opt_s(self) -> Num:
        """All resources at once: no step is faster."""
        return np.maximum(np.maximum(self.t_hbm_s, self.t_flop_s), self.t_net_s)

    @property
    def t_sum_s(self) -> Num:
        """No overlap at all: the honest estimate at batch 1, where layers are serial."""
        return self.t_hbm_s + self.t_flop_s + self.t_net_s

    @property
    def occupancy_s(self) -> Num:
        """Time until the slowest stage can take the next micro-batch: what bounds throughput."""
        slowest: Num = 0.0
        for stage in self.stages:
            slowest = np.maximum(slowest, stage.t_opt_s)
        return slowest

    @property
    def binding(self) -> str:
        """The resource that sets `t_opt_s`: `hbm`, `flop` or `net`."""
        times = {"hbm": self.t_hbm_s, "flop": self.t_flop_s, "net": self.t_net_s}
        return max(times, key=lambda name: float(times[name]))


@dataclass(frozen=True, slots=True)
class Part:
    """An op that a stage runs `count` times, what its bytes and its FLOP are told as, and its work
    unless it is a message.
    """

    op: Op
    count: float
    read: str
    name: str
    need: Work | None

    @classmethod
    def of(cls, part: str, counted: Counted) -> "Part":
        op = counted.op
        if isinstance(op, Collective):
            return cls(op, counted.count, op.kind, op.kind, None)
        read = "kv_read" if part == "attention" and not isinstance(op, Gemm) else part
        if isinstance(op, Elementwise) and op.name == "kv_write":
            read = "kv_write"
        return cls(op, counted.count, read, part, work(op))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The work of one step, whatever GPU and fabric do it: of each stage its parts, and the bytes
    that it holds of what its GEMMs name.
    """

    stages: tuple[tuple[tuple[Part, ...], float], ...] = field(repr=False)

    def floor(self, gpu: GPU, fabric: Fabric) -> StepFloor:
        """The floor of the step at these rates."""
        stages = []
        for parts, held in self.stages:
            found = _Sums()
            for part in parts:
                _add(found, part, gpu, fabric)
            stages.append(StepFloor(terms=tuple(_scaled(term, held) for term in found.terms())))
        return StepFloor(terms=_summed(stages), stages=tuple(stages))


def _summed(stages: Sequence[StepFloor]) -> tuple[Term, ...]:
    if len(stages) == 1:
        return stages[0].terms
    whole = _Sums()
    for term in (term for stage in stages for term in stage.terms):
        whole.add(term.resource, term.name, term.amount, term.seconds)
    return whole.terms()


@dataclass(slots=True)
class _Sums:
    """Amount and seconds by resource and name; what is zero everywhere is left out."""

    found: dict[tuple[Resource, str], tuple[Num, Num]] = field(default_factory=dict)

    def add(self, resource: Resource, name: str, amount: Num, seconds: Num) -> None:
        """Add to a term, or make it."""
        known = self.found.get((resource, name))
        if known is not None:
            self.found[resource, name] = known[0] + amount, known[1] + seconds
        elif not isinstance(amount, float | int) or amount:
            self.found[resource, name] = amount, seconds

    def terms(self) -> tuple[Term, ...]:
        """The sums, in the order in which each was first met."""
        return tuple(
            Term(resource=resource, name=name, amount=amount, seconds=seconds)
            for (resource, name), (amount, seconds) in self.found.items()
        )


def _scaled(term: Term, held: float) -> Term:
    if (term.resource, term.name) != ("hbm", "weights") or held == 1.0:
        return term
    return replace(term, amount=term.amount * held, seconds=term.seconds * held)


def _add(found: _Sums, part: Part, gpu: GPU, fabric: Fabric) -> None:
    count, need = part.count, part.need
    if need is None:
        assert isinstance(part.op, Collective)
        net = network_floor(part.op, fabric)
        found.add("network_bytes", part.name, count * net.n_bytes, count * net.bytes_s)
        found.add("network_messages", part.name, count, count * net.latency_s)
        return
    spilled = need.bytes_on(gpu) - need.hbm_bytes
    for label, n_bytes in ((part.read, need.hbm_bytes), ("activations", spilled)):
        amount = count * n_bytes
        found.add("hbm", label, amount, amount / gpu.hbm_bytes_per_s)
    found.add("flop", part.name, count * need.flop, count * need.flop_seconds(gpu))
    found.add("sfu", "softmax", count * need.sfu_ops, count * need.sfu_seconds(gpu))
