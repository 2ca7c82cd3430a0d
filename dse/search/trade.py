"""What a closed loop trades: throughput against TPOT, of many points at once.

Throughput needs requests in flight and requests in flight need time. Of `R` replicas with `b`
requests in flight each, none yields more tokens a second than `g(b)`: the concave hull of
`n / s(n)` over the batches that may run, `s` being the least seconds of a step. A pipeline of `p`
stages has `p` micro-batches, each of which goes through all of them before its next step: none
yields more than `p·g(b / p)`, nor more than its slowest stage. A run of `D` seconds that decodes
`M` tokens has at least `b = g⁻¹(M / (R·D))` in flight on average (Jensen), so its tokens take at
least `b / g(b)` seconds each. In flight beside them are those whose prompts are computed, and a
closed loop holds no more than its concurrency: that is the shortest `D`.

Longer runs may have a lower TPOT. So a point is not one optimistic vector but a curve, given as
corners: between two lengths of a run it is no faster than at the shorter, and its TPOT no less than
at the longer.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dse.cost.step import StepTables
from dse.search.envelope import Array, Hull, rising
from dse.search.offered import Offered
from dse.search.shared import Shared
from dse.search.steps import Line, Steps, seats_of
from dse.sim.spec import PoolSpec

# Batches of a table stand this far apart, and as whole numbers by 32 / 30 at most where one is
# left out. Between two of them n / s(n) lies above its chord by less than (ratio − 1)² / 16, as s
# is linear there.
_RATIO, _CHORD = 1.04, 3e-4
# Contexts are taken down to a step of the first grid and up to one of the second, so that loads
# share tables.
_DOWN, _UP = 1.04, 1.2
# Lengths at which a prompt alone is worked out, and numbers of chunks beyond the fewest.
_PROMPTS, _MOST_CHUNKS = 129, 6
# Knots of what is in flight by the seconds of a step, from so few on.
_FEWEST, _KNOTS = 1e-2, 400


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Sums over the requests of one part of a load; `longest` are the whole load's prompt and
    answer.
    """

    n: int
    concurrency: int
    output: float
    prompts: float
    new: float
    decode_steps: float
    decoding: float
    longest_decode: float
    context_sum: float
    shortest: float
    longest: tuple[int, int]
    first_burst: Array
    first_burst_mean: float
    settled_n: float
    settled_new: float
    settled_steps: float

    @classmethod
    def of(cls, offered: Offered, q_tokens: int, longest: tuple[int, int]) -> "Asked":
        """The sums of `offered`; `first_burst` adds up prompts asked at once, short ones first.
        When the last one is asked so many requests, prompt tokens and decode steps are `settled`.
        """
        burst = min(offered.concurrency, offered.n)
        done = offered.n - burst
        decode_steps = offered.decode_steps(q_tokens)
        first_burst = np.cumsum(np.sort(offered.new[:burst]))
        return cls(
            n=offered.n,
            concurrency=offered.concurrency,
            output=float(offered.osl.sum()),
            prompts=float(offered.isl.sum()),
            new=float(offered.new.sum()),
            decode_steps=float(decode_steps.sum()),
            decoding=float((offered.osl > 1.0).sum()),
            longest_decode=float(max(offered.osl.max() - 1.0, 1.0)),
            context_sum=offered.context_sum(q_tokens),
            shortest=float(offered.isl.min()),
            longest=longest,
            first_burst=first_burst,
            first_burst_mean=float(first_burst.mean()),
            settled_n=float(done),
            settled_new=float(np.sort(offered.new)[:done].sum()),
            settled_steps=float(np.sort(decode_steps)[:done].sum()),
        )


def coarse(offered: Offered, q_tokens: int) -> tuple[float, float]:
    """Contexts of decoding requests, low and high, on a grid that loads share."""
    low = float(offered.isl.min()) + 1.0
    high = float((offered.isl + offered.osl).max()) + q_tokens
    down, up = np.floor(np.log(low) / np.log(_DOWN)), np.ceil(np.log(high) / np.log(_UP))
    return float(_DOWN**down), float(_UP**up)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one replica of a pool can do at most, on requests whose contexts lie in `contexts`:
    `latency` are the steps of all its stages, `n` batches of a replica.
    """

    pool: PoolSpec
    contexts: tuple[float, float]
    n: Array
    latency: Steps

    @classmethod
    def of(cls, pool: PoolSpec, contexts: tuple[float, float]) -> "Rates":
        """The rates of `pool` for contexts from low to high; worked out as they are asked for."""
        own = pool.kv.units_of(max(1, int(contexts[0])))
        seats = min(seats_of(pool), pool.kv.n_units // max(1, own))
        top = float(max(seats, 1) * pool.dp)
        latency = Steps.of(pool, Line.of(pool.cost, pool.cost.tables.stage_count), contexts, top)
        n = np.unique(np.round(_RATIO ** np.arange(np.log(top) / np.log(_RATIO) + 1.0)))
        n = np.unique(np.concatenate([n[n < top], latency.n, [top]]))
        return cls(pool=pool, contexts=contexts, n=n, latency=latency)

    @cached_property
    def in_flight(self) -> Array:
        """Requests that decode on a replica: knots of `per_s`."""
        return self._hull.x

    @cached_property
    def per_s(self) -> Array:
        """Decode steps of requests a second at `in_flight`."""
        return self._hull.y

    @cached_property
    def most_per_s(self) -> float:
        """The most of them if all stages took the same."""
        return float(self.in_turn.y[-1])

    @cached_property
    def least_s(self) -> float:
        """Seconds of the shortest step."""
        return float(self._steps[0][0])

    @cached_property
    def kv_s(self) -> float:
        """Seconds that a token of context adds to a step."""
        return self._steps[1]

    @cached_property
    def alone_s(self) -> Hull:
        """Seconds of a prompt alone, by its tokens."""
        return _alone(self.latency, self.contexts)

    @cached_property
    def prompt_token_s(self) -> float:
        """Seconds for each token of many prompts."""
        return _prompt_token_s(self.latency)

    @cached_property
    def shared(self) -> tuple[Shared, ...]:
        """What prompts add, stage by stage, if the pool computes them as well."""
        if self.pool.pp > 1:
            return tuple(map(self._stage, np.eye(len(self.pool.cost.tables.stage_count))))
        return (self._added(self.latency, self._steps[0], self.in_turn),)

    @cached_property
    def by_step_s(self) -> tuple[Array, Array]:
        """Seconds of steps, and about how many are in flight where they take so long."""
        rising_n = np.geomspace(_FEWEST, self.in_flight[-1], _KNOTS)
        knots = np.concatenate([[_FEWEST / 10.0], rising_n])
        return knots / self.steps_per_s(knots), knots

    @cached_property
    def _steps(self) -> tuple[Array, float]:
        """Seconds of a step by `n`, and what a token of context adds to it."""
        pool, latency, n, host = self.pool, self.latency, self.n, self.pool.cost.host
        seconds = latency.seconds(n, np.full(len(n), self.contexts[0]))
        is_hidden = host.overlapped and bool(
            (seconds <= host.step_s + host.request_s * n / pool.dp).any()
        )
        adds_kv = pool.dp == 1 and pool.pp == 1 and pool.limits.q_tokens == 1 and not is_hidden
        # Without what contexts add a step may seem to take no time at all.
        adds_kv = adds_kv and bool((seconds > 0.0).all())
        if not adds_kv:
            seconds = latency.at_lowest(n)
        return rising(seconds), latency.kv_s if adds_kv else 0.0

    @cached_property
    def in_turn(self) -> Hull:
        """The rate of micro-batches that go through all stages in turn."""
        hull, pp = _fastest(self.n, self._steps[0]), self.pool.pp
        return hull if pp == 1 else Hull(hull.x * pp, hull.y * pp)

    @cached_property
    def _hull(self) -> Hull:
        """`per_s` by `in_flight`: nor more than the slowest stage."""
        hull = self.in_turn
        if self.pool.pp > 1:
            for each in self.shared:
                hull = _slower(hull, each.per_s)
        return hull

    def _stage(self, weights: Array) -> Shared:
        top = float(self.n[-1])
        stage = Steps.of(self.pool, Line.of(self.pool.cost, weights), self.contexts, top)
        stage_s = rising(stage.at_lowest(self.n))
        return self._added(stage, stage_s, _fastest(self.n, stage_s))

    def _added(self, steps: Steps, seconds: Array, per_s: Hull) -> Shared:
        shortest = max(self.contexts[0] - 1.0, 1.0)
        return Shared.of(steps, self.n, seconds, per_s, shortest)

    def steps_per_s(self, in_flight: Array) -> Array:
        """Decode steps of requests a second with so many in flight, at most."""
        found: Array = np.interp(in_flight, self.in_flight, self.per_s)
        return found

    def keeping(self, step_s: float) -> float:
        """Decode steps of requests a second while a step takes no more than `step_s` on average
        over the requests in it, at most: b steps in b / g(b) seconds, which rises with b.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            slowest = self.in_flight[1:] / self.per_s[1:]
        beyond = np.flatnonzero(slowest > step_s)
        if not len(beyond):
            return float(self.per_s[-1])
        # Within a piece g rises in a line, so the answer lies where it meets b / step_s.
        low, high = beyond[0], beyond[0] + 1
        slope = (self.per_s[high] - self.per_s[low]) / (self.in_flight[high] - self.in_flight[low])
        base = self.per_s[low] - slope * self.in_flight[low]
        return max(float(base / (1.0 - slope * step_s)), 0.0)

    def in_flight_at(self, step_s: Array) -> Array:
        """About how many are in flight where their steps take so long."""
        found: Array = np.interp(step_s, *self.by_step_s)
        return found


def _fastest(n: Array, seconds: Array) -> Hull:
    """The least concave function above n / s(n), which does not fall (its y)."""
    hull = Hull.below(np.append(0.0, n), -np.append(0.0, n / seconds * (1.0 + _CHORD)))
    return Hull(hull.x, np.maximum.accumulate(-hull.y))


def _slower(one: Hull, other: Hull) -> Hull:
    """The lower of two concave functions that go on as they end."""
    x = np.union1d(one.x, other.x)
    gap = one.at(x) - other.at(x)
    crosses = np.flatnonzero(gap[1:] * gap[:-1] < 0.0)
    share = gap[crosses] / (gap[crosses] - gap[crosses + 1])
    x = np.union1d(x, x[crosses] + share * (x[crosses + 1] - x[crosses]))
    return Hull(x, np.minimum(one.at(x), other.at(x)))


def _prompt_token_s(latency: Steps) -> float:
    """The least seconds of a replica for each token of a prompt, in batches of any size."""
    hull, pool = latency.tokens_s, latency.spec
    return float((hull.y / hull.x).min()) * (1.0 + _gap(pool)) / pool.pp


def _gap(pool: PoolSpec) -> float:
    """The share by which a step with prompts takes longer than its kernels, on all stages."""
    return pool.cost.host.prefill_gap if pool.pp == 1 else 0.0


def _alone(latency: Steps, contexts: tuple[float, float]) -> Hull:
    """Seconds of the steps of a prompt, by its tokens, whatever its chunks: no fewer of them than
    its tokens fill, and more take longer, as each reads the weights and is launched.
    """
    pool, line, t = latency.spec, latency.line, latency.spec.cost.tables
    budget = float(pool.limits.max_tokens)
    tokens = np.geomspace(max(contexts[0] - 2.0, 1.0), contexts[1], _PROMPTS)
    knots = np.unique(np.concatenate([t.token_x, t.group_x, [max(budget, contexts[1])]]))
    hull = Hull.below(knots, _chunk_s(knots, line, t))
    fewest = np.maximum(np.ceil(tokens / budget), 1.0)
    if not pool.scheduler.cuts_prompts:
        fewest = np.ones_like(tokens)  # a prompt is computed whole
    host = pool.cost.host
    each = 0.0 if host.overlapped else host.step_s + host.request_s
    rho, delta = latency.prompt_lines()
    pairs_s = rho * (tokens**2 / 2.0)[:, None]
    found = np.full(len(tokens), np.inf)
    for more in range(_MOST_CHUNKS):
        chunks = fewest + more
        whole = _chunk_s(tokens, line, t) if more == 0 else np.zeros_like(tokens)
        gpu_s = np.where(chunks == 1.0, whole, chunks * hull.at(tokens / chunks))
        attention = pairs_s - delta * chunks[:, None]
        gpu_s = gpu_s + np.maximum(attention.max(axis=1), 0.0)
        gpu_s = gpu_s * (1.0 + _gap(pool))
        found = np.minimum(found, np.maximum(gpu_s, chunks * pool.cost.launch_s) + chunks * each)
    floor = (fewest + _MOST_CHUNKS) * (float(hull.y.min()) + each)
    # Between two numbers of tokens it takes no less than at the smaller.
    least = rising(np.minimum(found, floor))
    return Hull.below(tokens[1:], least[:-1])


def _chunk_s(tokens: Array, line: Line, t: StepTables) -> Array:
    """Seconds of the kernels of a chunk on its rank, without attention, at least."""
    own = np.interp(tokens, t.token_x, rising(line.token))
    found: Array = own + np.interp(tokens, t.group_x, rising(line.group))
    return found + float(rising(line.head)[0]) + float(line.prefill[0, 0])
