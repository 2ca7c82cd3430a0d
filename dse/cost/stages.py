"""The tables of one pipeline stage, and the grids they stand on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dse.cost.lower import Counted, Program
from dse.cost.tables import Array, Priced, Prices, octaves, price
from dse.model.ops import Num
from dse.serving.deployment import Deployment, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrid:
    """Grid points: tokens of a rank and of its expert group, sequences, context, prompt chunk."""

    tokens: Array
    group: Array
    seqs: Array
    context: Array
    chunk: Array
    q_tokens: int

    @classmethod
    def of(cls, deployment: Deployment, pool: Pool, q_tokens: int) -> "StepGrid":
        """The grids that cover every step that the engine may form, with a point at each context
        where an attention variant changes its slope.
        """
        engine, model = pool.engine, deployment.model
        chunk = engine.max_num_batched_tokens
        if not engine.scheduler.cuts_prompts:
            chunk = max(chunk, model.max_context_tokens)
        tokens = max(chunk, engine.max_num_seqs * q_tokens)
        context = octaves(model.max_context_tokens, start=64, halves_from=np.inf)
        context = np.concatenate([[1.0], context])
        kinks = {
            float(limit)
            for group in model.layers
            for limit in (group.attention.window, getattr(group.attention, "selected", None))
            if limit
        }
        return cls(
            tokens=octaves(tokens),
            group=octaves(tokens * pool.layout.dp),
            seqs=octaves(engine.max_num_seqs, halves_from=16),
            context=np.unique(np.concatenate([context, sorted(kinks)])),
            chunk=octaves(chunk, halves_from=128),
            q_tokens=q_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Priced grids of one stage; `count` stages are like it. `token` by the rank's tokens, `group`
    by its expert group's, `head` and `draft` by rows of logits and decoding sequences, `decode` by
    sequences and mean context, `prefill` by new and cached tokens of a chunk.
    """

    count: int
    token: Priced
    group: Priced
    head: Priced
    draft: Priced
    decode: Priced
    prefill: Priced


def compile_stage(
    work_of: Program,
    index: int,
    count: int,
    grid: StepGrid,
    prices: Prices,
    drafts: Program | None,
) -> StageCost:
    """Price stage `index` of `work_of`; the last stage also runs the head and the drafts."""
    is_last = index == len(work_of.stages) - 1
    m, m_group = grid.tokens, grid.group
    seqs, context = grid.seqs[:, None], grid.context[None, :]
    chunk = grid.chunk[:, None]
    q = grid.q_tokens
    drafted = drafts if is_last else None
    decode = price(
        _decode(work_of, index, seqs, q, context, drafted), prices, _shape(seqs, context)
    )
    prefill = price(work_of.prefill_ops(index, 1.0, chunk, context), prices, _shape(chunk, context))
    token = [*work_of.token_ops(index, m), *_messages(work_of, index, m=m)]
    group = [*work_of.group_ops(index, m_group), *_messages(work_of, index, m_group=m_group)]
    return StageCost(
        count=count,
        token=price(token, prices, m.shape),
        group=price(group, prices, m_group.shape),
        head=price(work_of.head_ops(grid.seqs) if is_last else (), prices, grid.seqs.shape),
        draft=price(_draft(drafted, grid.seqs), prices, grid.seqs.shape),
        decode=decode,
        prefill=_monotone(prefill),
    )


def _messages(
    work_of: Program, index: int, *, m: Num = 1.0, m_group: Num = 1.0
) -> Iterator[Counted]:
    """The collectives whose size follows the one argument that is an array."""
    for counted in work_of.collectives(index, m, m_group):
        if np.ndim(counted.op.n_bytes):  # type: ignore[union-attr]
            yield counted


def _decode(
    work_of: Program, index: int, seqs: Num, q_tokens: int, context: Num, drafts: Program | None
) -> Iterator[Counted]:
    yield from work_of.decode_ops(index, seqs, q_tokens, context)
    if drafts is not None:
        yield from drafts.decode_ops(0, seqs, 1, context)


def _draft(drafts: Program | None, seqs: Array) -> Iterator[Counted]:
    """Everything but attention of the drafting passes: each runs the module and the head, its
    expert group fed evenly by all DP ranks.
    """
    if drafts is None:
        return
    everyone = seqs * drafts.pool.layout.dp
    yield from drafts.token_ops(0, seqs)
    yield from drafts.group_ops(0, everyone)
    yield from drafts.collectives(0, seqs, everyone)
    passes = drafts.model.n_layers
    for counted in drafts.head_ops(seqs):
        yield Counted(counted.op, counted.count * passes)


def _shape(rows: Array, columns: Array) -> tuple[int, ...]:
    return np.broadcast_shapes(rows.shape, columns.shape)


def _monotone(priced: Priced) -> Priced:
    """The same, where more tokens never take less time (a fitted model may say so by a hair)."""
    raw = priced.seconds
    grown = np.maximum.accumulate(np.maximum.accumulate(raw, axis=0), axis=1)
    scale = np.divide(grown, raw, out=np.ones_like(raw), where=raw > 0)
    for key in priced.parts:
        priced.parts[key] = priced.parts[key] * scale
    return priced
