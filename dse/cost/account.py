"""The account of one step at peak rates: five resources, and the interval between two floors.

HBM bytes, FLOP (with softmax exponentials beside), network bytes and network messages give times
here; the fifth resource, KV capacity, is `dse.cost.memory`. Terms on one resource add; resources
may overlap, so a step takes at least `t_opt` = max and, without any overlap, `t_sum` (Floor First,
arXiv:2607.05876, section 3). Expert loads are those of the mean rank. Arrays broadcast.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dse.cost.lower import Counted, Program, program
from dse.cost.network import network_floor
from dse.cost.work import work
from dse.hardware.fabric import Fabric
from dse.hardware.gpu import GPU
from dse.model.ffn import Routing
from dse.model.model import LayerGroup
from dse.model.ops import Collective, Elementwise, Gemm, Num
from dse.serving.deployment import Deployment, Pool

Resource = Literal["hbm", "flop", "sfu", "network_bytes", "network_messages"]
UNITS: dict[str, str] = {
    "hbm": "B",
    "flop": "FLOP",
    "sfu": "op",
    "network_bytes": "B",
    "network_messages": "message",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRank(Routing):
    """Routing as the mean rank sees it: a floor must not charge the fullest one."""

    def imbalance(self, n_tokens: Num, n_experts: int, top_k: int, ep: int) -> Num:
        """Rows of a rank ÷ mean rows: one."""
        return 1.0

    def touched_on_fullest(self, n_tokens: Num, n_experts: int, top_k: int, ep: int) -> Num:
        """Experts touched on the mean rank."""
        return self.touched(n_tokens, n_experts, top_k) / ep


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


def decode_floor(
    deployment: Deployment, pool: Pool, n_requests: Num, context_tokens: Num
) -> StepFloor:
    """A decode step of one replica over `n_requests` requests with mean context `context_tokens`.

    The fullest DP rank holds ⌈n/dp⌉ of them; with pipeline stages, a step is one of `pp` equal
    micro-batches and adds all stages. Under speculation each request computes drafted + 1 tokens;
    drafting itself is left out (a floor may).
    """
    layout = pool.layout
    q_tokens = tokens_computed(deployment)
    per_rank = -(-n_requests // (layout.dp * layout.pp))
    in_group = np.maximum(n_requests / layout.pp, per_rank) * q_tokens
    lowered = floor_program(deployment, pool)

    def stage(index: int) -> Iterator[tuple[str, Counted]]:
        yield from _shared_parts(lowered, index, per_rank * q_tokens, in_group)
        attention = lowered.decode_ops(index, per_rank, q_tokens, context_tokens)
        yield from (("attention", counted) for counted in attention)
        if index == layout.pp - 1:
            yield from (("head", c) for c in lowered.head_ops(per_rank * q_tokens))

    return _floor(lowered, stage, pool)


def prefill_floor(
    deployment: Deployment, pool: Pool, new_tokens: Num, cached_tokens: Num
) -> StepFloor:
    """A step that computes one chunk of `new_tokens` on `cached_tokens` cached ones, alone."""
    lowered = floor_program(deployment, pool)

    def stage(index: int) -> Iterator[tuple[str, Counted]]:
        yield from _shared_parts(lowered, index, new_tokens, new_tokens)
        attention = lowered.prefill_ops(index, 1, new_tokens, cached_tokens)
        yield from (("attention", counted) for counted in attention)
        if index == pool.layout.pp - 1:
            yield from (("head", counted) for counted in lowered.head_ops(1))

    return _floor(lowered, stage, pool)


def prompt_floor_s(
    deployment: Deployment, pool: Pool, isl_tokens: int, cached_tokens: int = 0
) -> float:
    """TTFT floor of a prompt alone: the sum of `t_opt` over its chunks, no queueing."""
    budget, done, total = pool.engine.max_num_batched_tokens, cached_tokens, 0.0
    while done < isl_tokens:
        new = min(budget, isl_tokens - done)
        total += float(prefill_floor(deployment, pool, new, done).t_opt_s)
        done += new
    return total


def tokens_computed(deployment: Deployment) -> int:
    """Tokens that a decoding request computes, and at most yields, in a step."""
    drafts = deployment.speculative
    return 1 if drafts is None else drafts.n_draft + 1


def floor_program(deployment: Deployment, pool: Pool) -> Program:
    """The program of a rank with the expert load of the mean rank."""
    routing = deployment.routing
    mean = MeanRank(kind=routing.kind, exponent=routing.exponent)
    return replace(program(deployment, pool), routing=mean)


def _shared_parts(
    lowered: Program, stage: int, m: Num, m_group: Num
) -> Iterator[tuple[str, Counted]]:
    yield from (("weights", counted) for counted in lowered.token_ops(stage, m))
    yield from (("experts", counted) for counted in lowered.group_ops(stage, m_group))
    yield from (("", counted) for counted in lowered.collectives(stage, m, m_group))


def _floor(
    lowered: Program, parts: Callable[[int], Iterator[tuple[str, Counted]]], pool: Pool
) -> StepFloor:
    stages = []
    for index in range(pool.layout.pp):
        held = _held_share(lowered, index)
        terms = _merged(_terms(part, op, pool.gpu, pool.fabric) for part, op in parts(index))
        stages.append(StepFloor(terms=tuple(_scaled(term, held) for term in terms)))
    whole = _merged(stage.terms for stage in stages)
    return StepFloor(terms=whole, stages=tuple(stages))


def _held_share(lowered: Program, stage: int) -> float:
    """Bytes that a rank holds of what its GEMMs name: below 1 only where a model file cuts evenly
    what engines replicate.
    """
    groups = lowered.stages[stage]
    if not any(group.evenly_cut for group in groups):
        return 1.0

    def held(group: LayerGroup) -> float:
        tensors = group.tensors(lowered.model.d_model, lowered.pool.shard())
        return group.repeat * sum(t.total_elements for t in tensors if t.cls != "expert")

    return sum(map(held, groups)) / sum(held(replace(g, evenly_cut=False)) for g in groups)


def _scaled(term: Term, held: float) -> Term:
    if (term.resource, term.name) != ("hbm", "weights") or held == 1.0:
        return term
    return replace(term, amount=term.amount * held, seconds=term.seconds * held)


def _terms(part: str, counted: Counted, gpu: GPU, fabric: Fabric) -> Iterator[Term]:
    op, count = counted.op, counted.count
    if isinstance(op, Collective):
        net = network_floor(op, fabric)
        sent = count * net.n_bytes
        yield Term(resource="network_bytes", name=op.kind, amount=sent, seconds=count * net.bytes_s)
        latency_s = count * net.latency_s
        yield Term(resource="network_messages", name=op.kind, amount=count, seconds=latency_s)
        return
    need = work(op)
    spilled = need.bytes_on(gpu) - need.hbm_bytes
    name = "kv_read" if part == "attention" and not isinstance(op, Gemm) else part
    if isinstance(op, Elementwise) and op.name == "kv_write":
        name = "kv_write"
    for label, n_bytes in ((name, need.hbm_bytes), ("activations", spilled)):
        amount = count * n_bytes
        yield Term(resource="hbm", name=label, amount=amount, seconds=amount / gpu.hbm_bytes_per_s)
    seconds = count * need.flop_seconds(gpu)
    yield Term(resource="flop", name=part, amount=count * need.flop, seconds=seconds)
    seconds = count * need.sfu_seconds(gpu)
    yield Term(resource="sfu", name="softmax", amount=count * need.sfu_ops, seconds=seconds)


def _merged(groups: Iterable[Iterable[Term]]) -> tuple[Term, ...]:
    """One term per resource and name; terms that are zero everywhere are left out."""
    found: dict[tuple[Resource, str], Term] = {}
    for term in (term for group in groups for term in group):
        key = (term.resource, term.name)
        if key in found:
            old = found[key]
            amount, seconds = old.amount + term.amount, old.seconds + term.seconds
            found[key] = replace(old, amount=amount, seconds=seconds)
        elif not isinstance(term.amount, float | int) or term.amount:
            found[key] = term
    return tuple(found.values())
