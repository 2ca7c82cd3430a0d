"""One lane of each point: its share of the load, and lookups into its deployment's tables."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dse.cost.step import GRAPH_MAX_SEQS
from dse.cost.tables import Array
from dse.saturation.curve import CONTEXT, SEQS, TOKENS, Curves

Index = NDArray[np.intp]

# Waves of equal requests drift apart by their spread in length; 2.5 deviations hold a wave.
WAVE_WIDTH = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests of `isl_tokens` prompt and `osl_tokens` output, `concurrency` of them in flight over
    all replicas, `n_requests` in the run.

    The first `cached_tokens` of a prompt are found in the prefix cache; `received_tokens` arrive
    with their KV from a prefill pool. `osl_cv2` is the squared coefficient of variation of the
    output lengths. Arrays broadcast.
    """

    concurrency: ArrayLike
    isl_tokens: ArrayLike
    osl_tokens: ArrayLike
    cached_tokens: ArrayLike = 0.0
    received_tokens: ArrayLike = 0.0
    osl_cv2: ArrayLike = 0.0
    n_requests: ArrayLike = np.inf


class Lane:
    """One lane of each point: its share of the load, and lookups into its deployment's tables."""

    def __init__(self, curves: Curves, which: Index, load: tuple[Array, ...]) -> None:
        self._curves, self._which = curves, which
        concurrency, self.isl, self.osl, cached, received, self.cv2, n_requests = load
        self.n_gpus, self.lanes, self.dp = self._of("n_gpus"), self._of("lanes"), self._of("dp")
        self.schedule, self.q = self._of("schedule"), self._of("q_tokens")
        self.budget, self.arrival_s = self._of("budget_tokens"), self._of("arrival_s")
        self.tokens_per_step = self._of("tokens_per_step")
        self._drafts = bool(np.any(self.q > 1))
        self.is_once = concurrency >= n_requests
        concurrency = np.minimum(concurrency, n_requests)
        self.n_active = np.minimum(self.lanes, concurrency)
        self.in_flight = concurrency / self.n_active
        self.group_lanes = np.clip(concurrency, 1.0, self.dp)
        self.n_requests = np.maximum(n_requests / self.n_active, 1.0)
        known = np.minimum(cached + received, self.isl - 1.0)
        self.prompt = np.maximum(self.isl - known, 1.0)
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
            known > 0, self._at("prompt_s", CONTEXT, np.maximum(known, 1.0)), 0.0
        )

    @classmethod
    def of(cls, curves: Curves, which: ArrayLike, load: Load) -> "Lane":
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
        gpu_s = (gpu_s + self._of("mixed_s")) * (1.0 + self._of("prefill_gap"))
        gpu_s = np.maximum(gpu_s, self._of("eager_s"))
        host_s = prompt_tokens * self._of("host_token_s")
        return self._with_host(gpu_s, n_decode + np.maximum(prompts, 1.0), host_s)

    def _gpu_s(self, n_decode: Array, tokens: Array, rows: Array, group_tokens: Array) -> Array:
        found = self._at("token_s", TOKENS, tokens) + self._at("head_s", SEQS, rows)
        found = found + self._at("group_s", TOKENS, group_tokens)
        decodes = self._scan_s(n_decode)
        if self._drafts:
            decodes = decodes + self._at("draft_s", SEQS, n_decode)
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
