"""What prompts add to the steps of requests that decode on the same GPUs, from below.

A step of `n` decoding requests and `p` prompt tokens takes at least `f(n + p)` beside what does not
depend on tokens. Where `u(m) = f(m) − σ·m` never falls by more than `κ` from one number of tokens
to a greater, `f(n + p) ≥ f(n) + σ·p − κ`: prompts add `σ` for each token, and each step that has
some takes `κ` less at most. That is of all steps together, so it adds to a bound of those that
decode. A step with prompts ends one or fills the budget of a rank, so there are no more of them
than prompts and full budgets. Who is preempted is computed again: one more step, but more tokens,
which only adds where `σ` for the shortest prompt outweighs its steps.
"""

from dataclasses import dataclass

import numpy as np

from dse.search.envelope import Array, Hull, rising
from dse.search.steps import Steps

# Slopes are taken from numbers of tokens at which most experts are read anyway.
_MANY_TOKENS = 256.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Seconds that prompts add: `token_s` for each token, less `step_s` for each step with some.

    `per_s` are the most decode steps of requests a second by requests in flight, as a hull.
    """

    token_s: float
    step_s: float
    budget: float
    per_s: Hull

    @classmethod
    def of(cls, steps: Steps, n: Array, seconds: Array, per_s: Hull, shortest: float) -> "Shared":
        """What prompts of at least `shortest` tokens add to steps that take `seconds` for `n`
        decoding requests and no prompt.
        """
        pool, budget = steps.spec, float(steps.spec.limits.max_tokens)
        t, limit = pool.cost.tables, float(steps.n_tokens)
        ends = np.array([1.0, limit])
        own, decoded = t.token_x * pool.dp, pool.limits.q_tokens * n
        tokens: Array = np.unique(np.concatenate([own, t.group_x, decoded, ends]))
        tokens = tokens[(tokens >= 1.0) & (tokens <= limit)]
        ways = [(_of_group(steps, tokens), _hidden(steps, n))]
        if pool.dp == 1:
            ways = [(steps.by_tokens(tokens), _hidden(steps, n))]
        elif pool.pp == 1:
            lost = float((seconds - _mean_of_ranks(steps, n)).max())
            ways.append((_by_mean(steps, tokens), lost))
        found = [_best(tokens, by_tokens, lost, shortest, budget) for by_tokens, lost in ways]
        gain, token_s, step_s = max(found)
        # Drafts that fail, and who decodes beside those that are done, decode more than is counted:
        # a step of a request must add more to all work than its tokens take by filling budgets.
        gap = 1.0 + (pool.cost.host.prefill_gap if pool.pp == 1 else 0.0)
        filled_s = gap * step_s * pool.limits.q_tokens / budget
        if gain <= 0.0 or filled_s * float(per_s.y[-1]) > 1.0:
            token_s, step_s = 0.0, 0.0
        return cls(token_s=token_s * gap, step_s=step_s * gap, budget=budget, per_s=per_s)

    def added_s(self, n: Array, prompts: Array, decoded: Array) -> Array:
        """Seconds that `n` prompts of so many tokens in all add to the work of all replicas, beside
        `decoded` tokens that are decoded.
        """
        steps = n + (prompts + decoded) / self.budget
        found: Array = np.maximum(self.token_s * prompts - self.step_s * steps, 0.0)
        return found


def _best(
    tokens: Array, by_tokens: Array, lost: float, shortest: float, budget: float
) -> tuple[float, float, float]:
    """(what the shortest prompt adds, σ, κ), of the slopes the one that adds most."""
    many = np.flatnonzero(tokens >= _MANY_TOKENS)[:-1]
    to_end = (by_tokens[-1] - by_tokens[many]) / (tokens[-1] - tokens[many])
    slopes = np.maximum(np.append(0.0, to_end), 0.0)
    rest = by_tokens[None, :] - slopes[:, None] * tokens[None, :]
    later = np.minimum.accumulate(rest[:, ::-1], axis=1)[:, ::-1]
    falls = (rest - later).max(axis=1) + max(lost, 0.0)
    adds = slopes * shortest - falls * (1.0 + shortest / budget)
    best = int(adds.argmax())
    return float(adds[best]), float(slopes[best]), float(falls[best])


def _of_group(steps: Steps, tokens: Array) -> Array:
    """Seconds of what all ranks compute together, by tokens; the fullest rank adds its own."""
    t = steps.spec.cost.tables
    return np.asarray(np.interp(tokens, t.group_x, rising(steps.line.group)))


def _by_mean(steps: Steps, tokens: Array) -> Array:
    """Seconds by tokens of a step; of a rank's own the mean of all ranks, a convex function."""
    t, own = steps.spec.cost.tables, rising(steps.line.token)
    hull = Hull.below(np.append(0.0, t.token_x), np.append(0.0, own))
    return hull.at(tokens / steps.spec.dp) + _of_group(steps, tokens)


def _mean_of_ranks(steps: Steps, n: Array) -> Array:
    """Seconds of a step that decodes `n` requests, of what ranks compute the mean, which the
    slowest one does not undercut.
    """
    dp, q = steps.spec.dp, steps.spec.limits.q_tokens
    rows = rising(steps.lowest_s - steps.by_tokens(q * steps.n))
    on_ranks = Hull.below(np.append(0.0, steps.n / dp), np.append(0.0, rows))
    return _by_mean(steps, q * n) + on_ranks.at(n / dp)


def _hidden(steps: Steps, n: Array) -> float:
    """By how much a host that works beside the GPU exceeds it."""
    host = steps.spec.cost.host
    if not host.overlapped:
        return 0.0
    return float((steps.at_lowest(n) - np.interp(n, steps.n, rising(steps.lowest_s))).max())
