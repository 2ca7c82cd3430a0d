"""Seconds of a pool's steps at mean contexts and prompts: to guess by, not to bound."""

from dataclasses import dataclass

import numpy as np

from dse.cost.step import GRAPH_MAX_SEQS, RankLoad, StepTables
from dse.search.envelope import Array
from dse.sim.spec import PoolSpec

# Batches of a rank stand about so far apart.
_RATIO = 1.35
# The fullest rank holds so many standard deviations (of a Poisson number) more than the mean.
_FULLEST = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """Seconds of a replica's steps: of a micro-batch that decodes `batch` requests until its tokens
    are out (`step_s`) and until the next may start (`stage_s`); of a `prompt` alone; and of each of
    many that fill all ranks. A rank has `seats` for requests of the mean context.
    """

    batch: Array
    step_s: Array
    stage_s: Array
    prompt: float
    alone_s: float
    alone_stage_s: float
    full_s: float
    full_stage_s: float
    seats: float

    @classmethod
    def of(cls, pool: PoolSpec, context: float, prompt: float) -> "Paces":
        """The paces of `pool` at a mean context and prompt, in tokens."""
        tokens = max(1, round(prompt))
        alone_s, alone_stage_s, full_s, full_stage_s = prompt_seconds(pool, tokens)
        each = pool.kv.units_of(max(1, int(context)))
        seats = float(max(1, min(pool.limits.max_seqs, pool.kv.n_units // max(1, each))))
        batch, step_s, stage_s = _decoding(pool, context, seats)
        return cls(
            batch=batch,
            step_s=step_s,
            stage_s=stage_s,
            prompt=float(tokens),
            alone_s=alone_s,
            alone_stage_s=alone_stage_s,
            full_s=full_s,
            full_stage_s=full_stage_s,
            seats=seats * pool.dp,
        )


def prompt_seconds(pool: PoolSpec, tokens: int) -> tuple[float, float, float, float]:
    """Seconds of a prompt alone, until its token is out and until the next may start, and the same
    of each of many that fill all ranks.
    """
    cost, most = pool.cost, max(1, pool.limits.max_tokens // tokens)
    alone = cost.seconds([RankLoad(chunks=((tokens, 0),)), *[RankLoad()] * (pool.dp - 1)])
    full = cost.seconds([RankLoad(chunks=((tokens, 0),) * most)] * pool.dp)
    n = most * pool.dp
    return alone.latency_s, alone.occupancy_s, full.latency_s / n, full.occupancy_s / n


def _decoding(pool: PoolSpec, context: float, seats: float) -> tuple[Array, Array, Array]:
    """Batches of a replica, and the seconds of a step that decodes them: see `StepCost`."""
    cost, t, q = pool.cost, pool.cost.tables, pool.limits.q_tokens
    knots = _RATIO ** np.arange(np.ceil(np.log(max(seats, 2.0)) / np.log(_RATIO)) + 1.0)
    mean = np.unique(np.minimum(np.floor(knots), seats))
    rank = np.round(mean + _FULLEST * np.sqrt(mean - 1.0)) if pool.dp > 1 else mean
    alone = np.ones(1) if pool.dp > 1 else np.empty(0)
    batch, rank = np.append(alone, mean * pool.dp), np.append(alone, rank)
    multiple = cost.host.graph_batch_multiple
    tokens = q * padded(rank, multiple)
    group = q * np.append(alone, padded(mean, multiple) * pool.dp)
    stages = [_stage_s(t, i, (rank, tokens, group), q, context) for i in range(len(t.stage_count))]
    slowest = np.max(stages, axis=0)
    host_s = cost.host.step_s + cost.host.request_s * rank
    added = np.maximum(host_s - slowest, 0.0) if cost.host.overlapped else host_s
    return batch, t.stage_count @ np.array(stages) + added, slowest + added


def _stage_s(
    t: StepTables, stage: int, batch: tuple[Array, Array, Array], q: int, context: float
) -> Array:
    """Seconds of the GPUs of a stage, by the requests and tokens of its fullest rank and the tokens
    of all.
    """
    rank, tokens, group = batch
    left = int(np.clip(np.searchsorted(t.decode_y, context) - 1, 0, len(t.decode_y) - 2))
    share = (context - t.decode_y[left]) / (t.decode_y[left + 1] - t.decode_y[left])
    z = t.decode_z[stage]
    attention = z[:, left] + share * (z[:, left + 1] - z[:, left])
    found: Array = (
        np.interp(tokens, t.token_x, t.token_z[stage])
        + np.interp(rank * q, t.head_x, t.head_z[stage])
        + np.interp(rank, t.draft_x, t.draft_z[stage])
        + np.interp(rank, t.decode_x, attention)
        + np.interp(group, t.group_x, t.group_z[stage])
    )
    return found


def padded(n: Array, multiple: int) -> Array:
    """The CUDA-graph batch of a decode step of `n` requests (as `dse.cost.step.padded`)."""
    if multiple <= 1:
        return n
    rounded = np.ceil(n / multiple) * multiple
    small = np.where(n <= 2, n, np.where((n <= 4) & (multiple >= 4), 4.0, rounded))
    return np.where(n > GRAPH_MAX_SEQS, n, small)
