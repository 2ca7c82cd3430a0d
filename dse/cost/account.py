"""The account of one step at peak rates: five resources, and the interval between two floors.

HBM bytes, FLOP (with softmax exponentials beside), network bytes and network messages give times
here; the fifth resource, KV capacity, is `dse.cost.memory` (Floor First, arXiv:2607.05876,
section 3). Expert loads are those of the mean rank. Arrays broadcast.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dse.cost.floor import Part, StepFloor, StepWork
from dse.cost.lower import Counted, Program, program
from dse.model.ffn import Routing
from dse.model.model import LayerGroup
from dse.model.ops import Num
from dse.serving.deployment import Deployment, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRank(Routing):
    """Routing as the mean rank sees it: a floor must not charge the fullest one."""

    def imbalance(self, n_tokens: Num, n_experts: int, top_k: int, ep: int) -> Num:
        """Rows of a rank ÷ mean rows: one."""
        return 1.0

    def touched_on_fullest(self, n_tokens: Num, n_experts: int, top_k: int, ep: int) -> Num:
        """Experts touched on the mean rank."""
        return self.touched(n_tokens, n_experts, top_k) / ep


def decode_floor(
    deployment: Deployment, pool: Pool, n_requests: Num, context_tokens: Num
) -> StepFloor:
    """A decode step of one replica over `n_requests` requests with mean context `context_tokens`.

    The fullest DP rank holds ⌈n/dp⌉ of them; with pipeline stages, a step is one of `pp` equal
    micro-batches and adds all stages. Under speculation each request computes drafted + 1 tokens;
    drafting itself is left out (a floor may).
    """
    return decode_work(deployment, pool, n_requests, context_tokens).floor(pool.gpu, pool.fabric)


def decode_work(
    deployment: Deployment, pool: Pool, n_requests: Num, context_tokens: Num
) -> StepWork:
    """The work of the step of `decode_floor`."""
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

    return _work_of(lowered, map(stage, range(layout.pp)))


def prefill_floor(
    deployment: Deployment, pool: Pool, new_tokens: Num, cached_tokens: Num
) -> StepFloor:
    """A step that computes one chunk of `new_tokens` on `cached_tokens` cached ones, alone."""
    return prefill_work(deployment, pool, new_tokens, cached_tokens).floor(pool.gpu, pool.fabric)


def prefill_work(
    deployment: Deployment, pool: Pool, new_tokens: Num, cached_tokens: Num
) -> StepWork:
    """The work of the step of `prefill_floor`."""
    lowered = floor_program(deployment, pool)

    def stage(index: int) -> Iterator[tuple[str, Counted]]:
        yield from _shared_parts(lowered, index, new_tokens, new_tokens)
        attention = lowered.prefill_ops(index, 1, new_tokens, cached_tokens)
        yield from (("attention", counted) for counted in attention)
        if index == pool.layout.pp - 1:
            yield from (("head", counted) for counted in lowered.head_ops(1))

    return _work_of(lowered, map(stage, range(pool.layout.pp)))


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


def _work_of(lowered: Program, stages: Iterable[Iterator[tuple[str, Counted]]]) -> StepWork:
    counted = [tuple(Part.of(part, each) for part, each in parts) for parts in stages]
    held = [_held_share(lowered, index) for index in range(len(counted))]
    return StepWork(stages=tuple(zip(counted, held, strict=True)))


def _held_share(lowered: Program, stage: int) -> float:
    """Bytes that a rank holds of what its GEMMs name: below 1 only where a model file cuts evenly
    what engines replicate.
    """
    groups = lowered.stages[stage]
    if not any(group.evenly_cut for group in groups):
        return 1.0

    def held(group: LayerGroup) -> float:
        tensors = group.tensors(lowered.model.d_model, lowered.shard)
        return group.repeat * sum(t.total_elements for t in tensors if t.cls != "expert")

    return sum(map(held, groups)) / sum(held(replace(g, evenly_cut=False)) for g in groups)
