"""Step times of one pool from below: the simulator's own tables under an ideal schedule.

A step of `n` decoding requests and `p` prompt tokens takes at least `a(q·n + p) + h(n) + κ·ctx`:
projections and experts by tokens, logits and attention by requests, KV reads by context. DP ranks
run in lock-step, so the fullest rank, which holds at least the mean, sets the pace.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dse.cost.step import StepCost
from dse.search.envelope import Array, Hull, rising
from dse.serving.schedulers import Static
from dse.sim.spec import PoolSpec


@dataclass(frozen=True, kw_only=True)
class Line:
    """One sum of stages: the slowest one's (what bounds throughput) or all (latency).

    Tables as in `dse.cost.step`, summed over the stages by their weights.
    """

    token: Array
    group: Array
    head: Array
    draft: Array
    decode: Array
    prefill: Array

    @classmethod
    def of(cls, cost: StepCost, weights: Array) -> "Line":
        """The stages of `cost` summed by `weights`."""
        t = cost.tables

        def summed(stacked: Array) -> Array:
            found: Array = np.tensordot(weights, stacked, axes=1)
            return found

        return cls(
            token=summed(t.token_z),
            group=summed(t.group_z),
            head=summed(t.head_z),
            draft=summed(t.draft_z),
            decode=summed(t.decode_z),
            prefill=summed(t.prefill_z),
        )


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A line of one pool for requests whose contexts lie in `contexts` (tokens, low and high) and
    batches (of a replica) up to `n_top`.

    `n` are batches between which everything is linear, `decode_s` the least seconds of a step that
    decodes so many, without `kv_s` per token of context; `lowest_s` is the same with the contexts
    as low as they get, to which nothing may be added; `rows` are seconds by batch, from none on,
    beside those by tokens, of which a step has `n_tokens` at most.
    """

    spec: PoolSpec
    contexts: tuple[float, float]
    line: Line
    n: Array
    decode_s: Array
    lowest_s: Array
    kv_s: float
    rows: tuple[Array, Array]
    n_tokens: float

    @cached_property
    def tokens_s(self) -> Hull:
        """The hull of seconds by tokens of a step."""
        t, ends = self.spec.cost.tables, [1.0, self.n_tokens]
        m = np.unique(np.concatenate([t.token_x * self.spec.dp, t.group_x, ends]))
        m = m[(m >= 1.0) & (m <= self.n_tokens)]
        return Hull.below(m, self.by_tokens(m))

    @cached_property
    def rows_s(self) -> Hull:
        """The hull of seconds by batch of a step."""
        return Hull.below(*self.rows)

    @classmethod
    def of(cls, spec: PoolSpec, line: Line, contexts: tuple[float, float], n_top: float) -> "Steps":
        """The minorants of `line`."""
        t, q, dp = spec.cost.tables, spec.limits.q_tokens, spec.dp
        seqs, (values, at) = t.decode_x, _decoding(t.decode_y, line.decode, contexts)
        kv_s, attention = _attention(seqs, values, at, n_top, dp)
        n = np.unique(
            np.concatenate(
                [t.token_x * dp / q, t.group_x / q, t.head_x * dp / q, seqs * dp, [1.0, n_top]]
            )
        )
        n = n[(n >= 1.0) & (n <= n_top)]
        rank = np.maximum(n / dp, 1.0)
        rows = np.interp(q * rank, t.head_x, rising(line.head))
        rows = rows + np.interp(rank, t.draft_x, rising(line.draft))
        least = rows + np.interp(rank, seqs, rising(values.min(axis=1)))
        rows = rows + np.interp(rank, seqs, attention)
        host = spec.cost.host
        fixed, each = (0.0, 0.0) if host.overlapped else (host.step_s, host.request_s / dp)
        # Under DP the rank with most prompt tokens need not be the one with most requests.
        bottom = np.concatenate([[line.head[0]], rows]) if dp == 1 else np.zeros(len(n) + 1)
        batches = np.concatenate([[0.0], n])
        by_tokens = _by_tokens(spec, line, q * n) + fixed + each * n
        return cls(
            spec=spec,
            contexts=contexts,
            line=line,
            n=n,
            decode_s=by_tokens + rows,
            lowest_s=by_tokens + least,
            kv_s=kv_s,
            rows=(batches, bottom + fixed + each * batches),
            n_tokens=max(dp * _most_tokens(spec, contexts[1]), n_top * q),
        )

    def by_tokens(self, tokens: Array) -> Array:
        """Seconds of what a step takes by its tokens, at least."""
        return _by_tokens(self.spec, self.line, tokens)

    def seconds(self, n: Array, context: Array) -> Array:
        """Seconds of a step that decodes `n` requests of mean context `context`, at least.

        Under DP the fullest rank has at least the mean number, each of its requests at least the
        context given, which must then be the lowest.
        """
        reads = self.kv_s * n / self.spec.dp * context
        return self._hosted(n, np.interp(n, self.n, rising(self.decode_s)) + reads)

    def at_lowest(self, n: Array) -> Array:
        """Seconds of a step that decodes `n` requests, at least, whatever their contexts."""
        return self._hosted(n, np.interp(n, self.n, rising(self.lowest_s)))

    def _hosted(self, n: Array, gpu_s: Array) -> Array:
        host = self.spec.cost.host
        if not host.overlapped:
            return gpu_s
        return np.maximum(gpu_s, host.step_s + host.request_s * n / self.spec.dp)

    def full_s(self) -> float:
        """Seconds of a step in which the tokens of one rank use up its budget, at least."""
        t, budget = self.spec.cost.tables, float(self.spec.limits.max_tokens)
        own = np.interp(budget, t.token_x, rising(self.line.token))
        return float(own + np.interp(budget, t.group_x, rising(self.line.group)))

    def least_per_request(self, batch: Array) -> Array:
        """The least seconds a decoding request of a step takes, in batches up to `batch`.

        KV reads are in it only under DP, at the lowest context; else they add to it. The host's
        time under asynchronous scheduling is not: see `host_per_request`.
        """
        low = self.contexts[0] if self.spec.dp > 1 else 0.0
        fixed = self.decode_s + self.kv_s * self.n / self.spec.dp * low
        best = np.minimum.accumulate(fixed / self.n)
        inside = np.searchsorted(self.n, batch, side="right") - 1
        found: Array = np.minimum(best[inside], np.interp(batch, self.n, fixed) / batch)
        return found

    def host_per_request(self, batch: Array) -> Array:
        """The least seconds of the host for each decoding request of a step."""
        host = self.spec.cost.host
        return host.step_s / batch + host.request_s / self.spec.dp

    def prompts_s(self, new: Array, pairs: Array, chunks: Array) -> Array:
        """Seconds of prompt attention of `chunks` chunks with `pairs` (query, key) pairs, at least.

        Each chunk takes at least `ρ·pairs − δ`; of the lines through the table's points the best.
        """
        if self.spec.dp > 1:
            return np.zeros_like(new)
        best = np.zeros_like(pairs)
        for rho, delta in zip(*self.prompt_lines(), strict=True):
            best = np.maximum(best, rho * pairs - delta * chunks)
        return best

    def prompt_lines(self) -> tuple[Array, Array]:
        """(ρ, δ) of those lines: of one prompt they hold on the rank that computes it."""
        t, high = self.spec.cost.tables, self.contexts[1]
        rows = slice(0, int(np.searchsorted(t.prefill_x, min(high, t.prefill_x[-1]))) + 1)
        columns = slice(0, int(np.searchsorted(t.prefill_y, min(high, t.prefill_y[-1]))) + 1)
        z = self.line.prefill[rows, columns] - self.line.prefill[0, 0]
        x, y = t.prefill_x[rows, None], t.prefill_y[None, columns]
        all_pairs = x * y + x * x / 2.0
        rho: Array = z[:, 0] / all_pairs[:, 0]
        excess = rho[:, None, None] * all_pairs - z
        return rho, np.maximum(excess.max(axis=(1, 2)), 0.0)


def seats_of(spec: PoolSpec) -> int:
    """Requests that decode in one step of a rank, at most, whatever KV holds."""
    limits = spec.limits
    if isinstance(spec.scheduler, Static):
        return limits.max_seqs
    return min(limits.max_seqs, limits.max_tokens // limits.q_tokens)


def _most_tokens(spec: PoolSpec, longest: float) -> float:
    """Tokens of one step of a rank whose prompts have up to `longest`, at most."""
    if isinstance(spec.scheduler, Static):
        return spec.limits.max_seqs * longest
    budget = float(spec.limits.max_tokens)
    return budget if spec.scheduler.cuts_prompts else max(budget, longest)


def _by_tokens(spec: PoolSpec, line: Line, tokens: Array) -> Array:
    t = spec.cost.tables
    own = np.interp(np.maximum(tokens / spec.dp, 1.0), t.token_x, rising(line.token))
    found: Array = own + np.interp(tokens, t.group_x, rising(line.group))
    return found


def _decoding(contexts: Array, table: Array, span: tuple[float, float]) -> tuple[Array, Array]:
    """Attention of the table's numbers of sequences at mean contexts, and the contexts: the knots
    within `span` and its ends.
    """
    low, high = span
    inner = contexts[(contexts > low) & (contexts < high)]
    at = np.concatenate([[low], inner, [high]])
    # Beyond the grid its last piece goes on; requests that long are refused.
    at = np.minimum(at, contexts[-1])
    return np.stack([np.interp(at, contexts, row) for row in table]), at


def _attention(seqs: Array, values: Array, at: Array, n_top: float, dp: int) -> tuple[float, Array]:
    """(κ, u): attention of n sequences of a rank on mean context c takes ≥ u(n) + κ·n·c.

    κ is the chord of the fullest batch; u is the least remainder over the contexts.
    """
    place = min(int(np.searchsorted(seqs, min(n_top / dp, seqs[-1]))), len(seqs) - 1)
    width = max(at[-1] - at[0], 1.0)
    kappa = max(0.0, float((values[place, -1] - values[place, 0]) / width / seqs[place]))
    rest = (values - kappa * seqs[:, None] * at[None, :]).min(axis=1)
    return kappa, rising(rest) if dp > 1 else rest
