"""Steady state of continuous batching in closed form, vectorised over points.

SLIM (arXiv:2607.29575, equations 8-11) prices a batch by its weights, its KV scan and its prompts.
Here the same account is per rank and the batch follows from conservation of tokens: a lane's step
holds `N` decoding requests and the prompt tokens that replace those that finish, up to the engine's
token budget; a request takes `D` decode steps and `ISL / P` prompt steps of `P` free tokens. Live
contexts average `ISL + OSL·(1 + cv²)/2`, and the pool holds no more of them than fit.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dse.cost.step import GRAPH_MAX_SEQS
from dse.cost.tables import Array
from dse.saturation.curve import CONTEXT, SEQS, TOKENS, Curves

Index = NDArray[np.intp]

# Waves of equal requests drift apart by their spread in length; 2.5 deviations hold a wave.
WAVE_WIDTH = 2.5
DRAIN_AT = (0.125, 0.375, 0.625, 0.875)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests of `isl_tokens` prompt (the first `cached_tokens` found in the prefix cache) and
    `osl_tokens` output, `concurrency` of them in flight over all replicas, `n_requests` in the run.

    `osl_cv2` is the squared coefficient of variation of the output lengths. Arrays broadcast.
    """

    concurrency: ArrayLike
    isl_tokens: ArrayLike
    osl_tokens: ArrayLike
    cached_tokens: ArrayLike = 0.0
    osl_cv2: ArrayLike = 0.0
    n_requests: ArrayLike = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What a deployment does under a load; arrays over points.

    Rates are of the whole deployment and the whole run (its last requests included); latencies are
    means over requests, `ttft_s` with its queueing. `running` is the number of requests that decode
    at once and `kv_bytes` what they hold on a rank. A point whose pool does not hold one request
    has rate 0 and NaN latencies; `tpot_s` of one-token outputs is NaN.
    """

    req_per_s: Array
    output_tok_per_s: Array
    output_tok_per_s_per_gpu: Array
    tpot_s: Array
    ttft_s: Array
    e2e_s: Array
    running: Array
    kv_bytes: Array
    step_s: Array


def throughput(curves: Curves, which: ArrayLike, load: Load) -> Steady:
    """Predict each point: deployment `which` of `curves` under its entry of `load`."""
    lane = _Lane.of(curves, which, load)
    cycle = _cycle(lane)
    drain = _drain(lane, cycle)
    rate = 1.0 / (1.0 / cycle.req_per_s + drain.extra_s / lane.n_requests)
    mixed = (1.0 - drain.share) * cycle.tpot_s + drain.share * drain.tpot_s
    tpot = np.where(lane.schedule == 2, cycle.decode_s, mixed * lane.preempted())
    tpot = np.where(lane.decode_steps > 0, tpot / lane.tokens_per_step, np.nan)
    decode_s = np.where(lane.decode_steps > 0, (lane.osl - 1.0) * tpot, 0.0)
    ttft = lane.in_flight / cycle.req_per_s - decode_s + _burst(lane, cycle) + lane.arrival_s
    held = np.where(lane.holds, 1.0, np.nan)
    ttft = held * np.maximum(ttft, cycle.prompt_s)
    requests = np.where(lane.holds, rate * lane.n_active, 0.0)
    return Steady(
        req_per_s=requests,
        output_tok_per_s=requests * lane.osl,
        output_tok_per_s_per_gpu=requests * lane.osl / lane.n_gpus,
        tpot_s=held * tpot,
        ttft_s=ttft,
        e2e_s=ttft + held * decode_s,
        running=np.where(lane.holds, cycle.n_decode * lane.n_active, 0.0),
        kv_bytes=np.where(lane.holds, cycle.n_decode * lane.request_bytes * lane.pp, 0.0),
        step_s=held * cycle.step_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cycle:
    """The steady state of one lane: `n_decode` requests decode, `req_per_s` finish, `mixed_s` and
    `decode_s` are steps with and without prompt tokens, `prompt_s` a request's own prompt.
    `is_full` where the token budget, not the requests in flight, limits the lane.
    """

    n_decode: Array
    req_per_s: Array
    tpot_s: Array
    step_s: Array
    mixed_s: Array
    decode_s: Array
    prompt_s: Array
    is_full: NDArray[np.bool_]


class _Lane:
    """One lane of each point: its share of the load, and lookups into its deployment's tables."""

    def __init__(self, curves: Curves, which: Index, load: tuple[Array, ...]) -> None:
        self._curves, self._which = curves, which
        concurrency, self.isl, self.osl, cached, self.cv2, n_requests = load
        self.n_gpus, self.lanes, self.dp = self._of("n_gpus"), self._of("lanes"), self._of("dp")
        self.schedule, self.q = self._of("schedule"), self._of("q_tokens")
        self.budget, self.arrival_s = self._of("budget_tokens"), self._of("arrival_s")
        self.tokens_per_step = self._of("tokens_per_step")
        concurrency = np.minimum(concurrency, n_requests)
        self.n_active = np.minimum(self.lanes, concurrency)
        self.in_flight = concurrency / self.n_active
        self.group_lanes = np.clip(concurrency, 1.0, self.dp)
        self.n_requests = np.maximum(n_requests / self.n_active, 1.0)
        self.prompt = np.maximum(self.isl - cached, 1.0)
        self.decode_steps = np.maximum(self.osl - 1.0, 0.0) / self.tokens_per_step
        self.context = self.isl + self.osl * (1.0 + self.cv2) / 2.0
        shared = np.where(cached > 0, self._at("kv_bytes", CONTEXT, cached), 0.0)
        self.request_bytes = self._at("kv_bytes", CONTEXT, self.context) - shared
        pool = self._of("pool_bytes") - shared
        self.holds = self._at("kv_bytes", CONTEXT, self.isl + self.osl) - shared <= pool
        self.pp = self._of("pp")
        room = np.maximum(pool / self.request_bytes, 1.0)
        wanted = np.minimum(self.in_flight, self._of("max_seqs"))
        self.most, self.is_short = np.minimum(wanted, room), room < wanted
        self.prompt_attention_s = self._at("prompt_s", CONTEXT, self.isl) - np.where(
            cached > 0, self._at("prompt_s", CONTEXT, np.maximum(cached, 1.0)), 0.0
        )

    @classmethod
    def of(cls, curves: Curves, which: ArrayLike, load: Load) -> "_Lane":
        """The lanes of points that broadcast."""
        given = [np.asarray(getattr(load, each.name), dtype=float) for each in fields(Load)]
        index, *arrays = np.broadcast_arrays(np.asarray(which, dtype=np.intp), *given)
        return cls(curves, index, tuple(arrays))

    def _of(self, name: str) -> Array:
        values: Array = np.asarray(getattr(self._curves, name))
        return values[self._which]

    def _at(self, name: str, grid: Array, x: Array) -> Array:
        table: Array = getattr(self._curves, name)
        cell, share = _cell(grid, x)
        low = table[self._which, cell]
        return np.asarray(low + share * (table[self._which, cell + 1] - low))

    def _scan_s(self, n_decode: Array) -> Array:
        """Decode attention of `n_decode` requests at the mean live context."""
        table, which = self._curves.decode_s, self._which
        i, a = _cell(SEQS, n_decode)
        j, b = _cell(CONTEXT, self.context)
        near = table[which, i, j] + a * (table[which, i + 1, j] - table[which, i, j])
        far = table[which, i, j + 1] + a * (table[which, i + 1, j + 1] - table[which, i, j + 1])
        return np.asarray(near + b * (far - near))

    def decode_step_s(self, n_decode: Array) -> Array:
        """Seconds of a step of `n_decode` decoding requests."""
        tokens = _padded(n_decode, self._of("graph_multiple")) * self.q
        gpu_s = self._gpu_s(n_decode, tokens, n_decode * self.q, tokens * self.group_lanes)
        return self._with_host(gpu_s, n_decode)

    def mixed_step_s(self, n_decode: Array, prompt_tokens: Array, group_tokens: Array) -> Array:
        """Seconds of a step that also computes `prompt_tokens` of whole or partial prompts on a
        lane, `group_tokens` of them on all lanes of its expert group.
        """
        prompts = prompt_tokens / self.prompt
        decodes = n_decode * self.q
        everyone = decodes * self.group_lanes + group_tokens
        gpu_s = self._gpu_s(n_decode, decodes + prompt_tokens, decodes + prompts, everyone)
        gpu_s = gpu_s + prompts * self.prompt_attention_s + self._of("launch_s")
        gpu_s = gpu_s + self._of("mixed_s")
        host_s = prompt_tokens * self._of("host_token_s")
        return self._with_host(gpu_s, n_decode + np.maximum(prompts, 1.0), host_s)

    def _gpu_s(self, n_decode: Array, tokens: Array, rows: Array, group_tokens: Array) -> Array:
        found = self._at("token_s", TOKENS, tokens) + self._at("head_s", SEQS, rows)
        found = found + self._at("group_s", TOKENS, group_tokens)
        decodes = self._scan_s(n_decode) + self._at("draft_s", SEQS, n_decode)
        return np.asarray(found + np.where(n_decode > 0, decodes, 0.0))

    def _with_host(self, gpu_s: Array, n_requests: Array, more_s: Array | float = 0.0) -> Array:
        host_s = self._of("host_step_s") + self._of("host_request_s") * n_requests + more_s
        hidden = self._of("host_overlapped") > 0
        return np.where(hidden, np.maximum(gpu_s, host_s), gpu_s + host_s)

    def clump(self, n_decode: Array, per_step: Array) -> Array:
        """Requests that finish together: all of a wave of equal ones, those of a step once their
        lengths have spread them.
        """
        spread = np.maximum(self.decode_steps * self.spread * WAVE_WIDTH, 1.0)
        return np.minimum(np.maximum(n_decode / spread, np.maximum(per_step, 1.0)), n_decode)

    def preempted(self) -> Array:
        """What preemption multiplies TPOT by where the pool is short: the share of the pool that no
        running request fills belongs to those that lost their place, the more so the more a request
        grows beyond the prompt that it was admitted with.
        """
        growth = 2.0 * self.osl / (self.isl + self.osl)
        waiting = (1.0 / self._of("pool_use") - 1.0) * growth
        return np.where(self.is_short, 1.0 + waiting, 1.0)

    def drifted(self, is_full: NDArray[np.bool_]) -> Array:
        """How far waves have dissolved: 0 for equal requests in lock-step, 1 for a stream."""
        queued = (self.most < 0.999 * self.in_flight) | is_full
        return np.where(queued, 1.0, np.minimum(self.spread * WAVE_WIDTH, 1.0))

    def any_rank(self, share: Array, is_full: NDArray[np.bool_]) -> Array:
        """The share of steps in which any of the DP ranks, which step together, holds prompts: the
        same steps in lock-step, independent ones once they have drifted.
        """
        apart = 1.0 - (1.0 - share) ** self.group_lanes
        drifted = self.drifted(is_full)
        return np.asarray((1.0 - drifted) * share + drifted * apart)

    @property
    def spread(self) -> Array:
        """Standard deviation of a wave half-way through the run, in output lengths."""
        waves = np.minimum(self.n_requests / np.maximum(self.most, 1.0), 1e4)
        return np.asarray(np.sqrt(self.cv2 * np.maximum(waves / 2.0, 1.0)))


def _padded(n_decode: Array, multiple: Array) -> Array:
    """The CUDA-graph batch of a decode step, as `cost.step.padded` gives it for whole batches."""
    rounded = np.ceil(n_decode / multiple) * multiple
    rounded = np.where((n_decode <= 4.0) & (multiple >= 4.0), 4.0, rounded)
    as_is = (n_decode <= 2.0) | (n_decode > GRAPH_MAX_SEQS) | (multiple <= 1.0)
    return np.where(as_is, n_decode, rounded)


def _cell(grid: Array, x: Array) -> tuple[Index, Array]:
    """The cell of `x` in `grid` and the share of its upper end; nothing is taken below the grid."""
    x = np.maximum(x, grid[0])
    cell = np.clip(np.searchsorted(grid, x, side="right") - 1, 0, len(grid) - 2)
    return cell, (x - grid[cell]) / (grid[cell + 1] - grid[cell])


def _cycle(lane: _Lane) -> _Cycle:
    """The steady state under each lane's own scheduler."""
    mixes = lane.schedule == 0
    if mixes.all():
        return _chunked(lane)
    if not mixes.any():
        return _batched(lane)
    chunked, batched = _chunked(lane), _batched(lane)
    names = [each.name for each in fields(_Cycle)]
    merged: dict[str, Any] = {
        name: np.where(mixes, getattr(chunked, name), getattr(batched, name)) for name in names
    }
    return _Cycle(**merged)


def _chunked(lane: _Lane) -> _Cycle:
    """Decodes first, prompts in what is left of the token budget (chunked prefill)."""
    steps, prompt = lane.decode_steps, lane.prompt
    full = lane.budget / (steps * lane.q + prompt)
    n_decode = np.minimum(lane.most, full * steps)
    for _ in range(12):
        free = np.maximum(lane.budget - n_decode * lane.q, 1.0)
        prompt_steps = np.maximum(prompt / free, 1.0)
        per_step = np.minimum(lane.most / (steps + prompt_steps), full)
        n_decode = 0.5 * (n_decode + per_step * steps)
    free = np.maximum(lane.budget - n_decode * lane.q, 1.0)
    clump = lane.clump(lane.most, per_step)
    chunk = np.minimum(free, clump * prompt)
    own = np.minimum(per_step * prompt / chunk, 1.0)
    is_full = per_step >= 0.999 * full
    share = lane.any_rank(own, is_full)
    beside = np.clip(lane.most - np.maximum(chunk / prompt, 1.0), 0.0, n_decode)
    mixed_s = lane.mixed_step_s(beside, chunk, chunk * lane.group_lanes * own / share)
    decode_s = lane.decode_step_s(n_decode)
    step_s = share * mixed_s + (1.0 - share) * decode_s
    own_s = np.maximum(prompt / free, 1.0) * mixed_s
    others = (step_s * (steps + prompt_steps) - own_s) / np.maximum(steps, 1e-9)
    return _Cycle(
        n_decode=n_decode,
        req_per_s=per_step / step_s,
        tpot_s=np.where(is_full, step_s, others),
        step_s=step_s,
        mixed_s=mixed_s,
        decode_s=decode_s,
        prompt_s=own_s,
        is_full=is_full,
    )


def _batched(lane: _Lane) -> _Cycle:
    """Whole prompts in steps of their own, before decoding goes on (prefill first), or all of a
    batch at once, which then decodes to its longest output (static).
    """
    n_decode, is_static = lane.most, lane.schedule == 2
    longest = 1.0 + np.sqrt(lane.cv2 * 2.0 * np.log(np.maximum(n_decode, 1.0)))
    steps = lane.decode_steps * np.where(is_static, longest, 1.0)
    clump = lane.clump(n_decode, n_decode / np.maximum(steps, 1.0))
    batched = np.minimum(clump * lane.prompt, np.maximum(lane.budget, lane.prompt))
    chunk = np.where(is_static, n_decode * lane.prompt, batched)
    prompt_s = lane.mixed_step_s(np.zeros_like(chunk), chunk, chunk * lane.group_lanes)
    decode_s = lane.decode_step_s(n_decode)
    prompts_s = n_decode * lane.prompt / chunk * prompt_s
    cycle_s = steps * decode_s + prompts_s
    own_s = np.maximum(lane.prompt / chunk, 1.0) * prompt_s
    return _Cycle(
        n_decode=n_decode,
        req_per_s=n_decode / cycle_s,
        tpot_s=(cycle_s - own_s) / np.maximum(steps, 1e-9),
        step_s=decode_s,
        mixed_s=prompt_s,
        decode_s=decode_s,
        prompt_s=own_s,
        is_full=np.zeros(n_decode.shape, dtype=bool),
    )


@dataclass(frozen=True, slots=True)
class _Drain:
    """The end of a run: `extra_s` beyond its share of steady work, `share` of the decode tokens
    that fall into it, and their mean `tpot_s`.
    """

    extra_s: Array | float
    share: Array | float
    tpot_s: Array | float


def _drain(lane: _Lane, cycle: _Cycle) -> _Drain:
    """How a run ends: in lock-step with a wave that may be partial; in a stream with ever fewer
    requests, the longest last.

    `N·(1 − x)^k` of them are left at time `x` of the drain, with `k` such that the decode steps
    left are right; the time is integrated over `DRAIN_AT`. The longest of N outputs stands
    0.85·√(2·ln N) deviations out, log-normally.
    """
    if not np.isfinite(lane.n_requests).any():
        return _Drain(0.0, 0.0, 0.0)
    n, steps = np.maximum(cycle.n_decode, 1.0), lane.decode_steps
    waves = np.where(np.isfinite(lane.n_requests), lane.n_requests, 1e9) / lane.most
    residual = (1.0 + lane.cv2) / 2.0
    left = residual + np.clip(2.0 - waves, 0.0, 1.0) * np.maximum(1.0 - residual, 0.0)
    variance = np.log1p(lane.cv2)
    reach = 0.85 * np.sqrt(2.0 * np.log(n) * variance) - variance / 2.0
    longest = np.maximum(np.exp(reach), 1.02 * left)
    steepness = longest / left - 1.0
    alive = [np.maximum(n * (1.0 - x) ** steepness, 1.0) for x in DRAIN_AT]
    each_s = [lane.decode_step_s(count) for count in alive]
    drain_s = steps * longest * sum(each_s) / len(DRAIN_AT)
    weighted = sum(a * t for a, t in zip(alive, each_s, strict=True)) / sum(alive)
    tokens_s = np.where(cycle.is_full, cycle.mixed_s * lane.q / lane.budget, cycle.decode_s / n)
    drained = drain_s - n * left * steps * tokens_s
    partial = (np.ceil(waves - 1e-9) - waves) * steps * each_s[-1]
    drifted = lane.drifted(cycle.is_full)
    extra = (1.0 - drifted) * partial + drifted * np.where(n > 1.5, np.maximum(drained, 0.0), 0.0)
    share = drifted * np.minimum(n * left / lane.n_requests, 1.0)
    # No prompt interrupts the drain, but the first N prompts meet half as many decodes.
    met = np.maximum(share - n / lane.n_requests / 2.0, 0.0) / np.maximum(share, 1e-9)
    prompts_s = met * np.maximum(cycle.tpot_s - cycle.decode_s, 0.0)
    return _Drain(extra, share, np.minimum(np.asarray(weighted) + prompts_s, cycle.tpot_s))


def _burst(lane: _Lane, cycle: _Cycle) -> Array:
    """Mean wait of the run's first requests, which all arrive at once."""
    first = np.minimum(lane.in_flight, lane.most)
    wait_s = first * lane.prompt / lane.budget * cycle.mixed_s / 2.0
    return np.asarray(np.minimum(first / lane.n_requests, 1.0) * wait_s)
