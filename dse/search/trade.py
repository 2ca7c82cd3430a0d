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

from dataclasses import dataclass, replace

import numpy as np

from dse.cost.step import StepTables
from dse.search.dominance import Flags
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
_HALVINGS = 24
# Corners of a curve, in equal ratios of the seconds of a step.
CORNERS = 40


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
    settled: tuple[float, float, float]

    @classmethod
    def of(cls, offered: Offered, q_tokens: int, longest: tuple[int, int]) -> "Asked":
        """The sums of `offered`; `first_burst` adds up prompts asked at once, short ones first.
        When the last one is asked `settled` (requests, prompt tokens, decode steps) are done.
        """
        burst = min(offered.concurrency, offered.n)
        done = offered.n - burst
        decode_steps = offered.decode_steps(q_tokens)
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
            first_burst=np.cumsum(np.sort(offered.new[:burst])),
            settled=(
                float(done),
                float(np.sort(offered.new)[:done].sum()),
                float(np.sort(decode_steps)[:done].sum()),
            ),
        )


def coarse(offered: Offered, q_tokens: int) -> tuple[float, float]:
    """Contexts of decoding requests, low and high, on a grid that loads share."""
    low = float(offered.isl.min()) + 1.0
    high = float((offered.isl + offered.osl).max()) + q_tokens
    down, up = np.floor(np.log(low) / np.log(_DOWN)), np.ceil(np.log(high) / np.log(_UP))
    return float(_DOWN**down), float(_UP**up)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one replica of a pool can do at most: `per_s` decode steps of requests a second by
    requests in flight, `most_per_s` the most of them whatever their stages take each; `least_s` is
    the shortest step, `kv_s` what a token of context adds to one.
    A prompt alone takes `alone_s` by its tokens, many take `prompt_token_s` for each token.
    `shared` says what prompts add on each stage of a pool that also decodes.
    """

    pool: PoolSpec
    contexts: tuple[float, float]
    in_flight: Array
    per_s: Array
    most_per_s: float
    least_s: float
    kv_s: float
    alone_s: Hull
    prompt_token_s: float
    shared: tuple[Shared, ...]

    @classmethod
    def of(cls, pool: PoolSpec, contexts: tuple[float, float]) -> "Rates":
        """The rates of `pool` for contexts from low to high."""
        t = pool.cost.tables
        own = pool.kv.units_of(max(1, int(contexts[0])))
        seats = min(seats_of(pool), pool.kv.n_units // max(1, own))
        top = float(max(seats, 1) * pool.dp)
        latency = Steps.of(pool, Line.of(pool.cost, t.stage_count), contexts, top)
        n = np.unique(np.round(_RATIO ** np.arange(np.log(top) / np.log(_RATIO) + 1.0)))
        n = np.unique(np.concatenate([n[n < top], latency.n, [top]]))
        seconds = latency.seconds(n, np.full(len(n), contexts[0]))
        host = pool.cost.host
        is_hidden = host.overlapped and bool(
            (seconds <= host.step_s + host.request_s * n / pool.dp).any()
        )
        adds_kv = pool.dp == 1 and pool.pp == 1 and pool.limits.q_tokens == 1 and not is_hidden
        # Without what contexts add a step may seem to take no time at all.
        adds_kv = adds_kv and bool((seconds > 0.0).all())
        if not adds_kv:
            seconds = latency.at_lowest(n)
        seconds, shortest = rising(seconds), max(contexts[0] - 1.0, 1.0)
        hull = _fastest(n, seconds)
        shared: list[Shared] = []
        if pool.pp == 1 and pool.role == "both":
            shared = [Shared.of(latency, n, seconds, hull, shortest)]
        elif pool.pp > 1:
            for weights in np.eye(len(t.stage_count)):
                stage = Steps.of(pool, Line.of(pool.cost, weights), contexts, top)
                stage_s = rising(stage.at_lowest(n))
                shared.append(Shared.of(stage, n, stage_s, _fastest(n, stage_s), shortest))
            hull = Hull(hull.x * pool.pp, hull.y * pool.pp)
        most_per_s = float(hull.y[-1])
        if pool.pp > 1:
            for each in shared:
                hull = _slower(hull, each.per_s)
        return cls(
            pool=pool,
            contexts=contexts,
            in_flight=hull.x,
            per_s=hull.y,
            most_per_s=most_per_s,
            least_s=float(seconds[0]),
            kv_s=latency.kv_s if adds_kv else 0.0,
            alone_s=_alone(latency, contexts),
            prompt_token_s=_prompt_token_s(latency),
            shared=tuple(shared),
        )

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
        knots = np.concatenate([[1e-3], np.geomspace(1e-2, self.in_flight[-1], 400)])
        found: Array = np.interp(step_s, knots / self.steps_per_s(knots), knots)
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
    found = np.full(len(tokens), np.inf)
    for more in range(_MOST_CHUNKS):
        chunks = fewest + more
        whole = _chunk_s(tokens, line, t) if more == 0 else np.zeros_like(tokens)
        gpu_s = np.where(chunks == 1.0, whole, chunks * hull.at(tokens / chunks))
        attention = rho * (tokens**2 / 2.0)[:, None] - delta * chunks[:, None]
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


@dataclass(frozen=True, kw_only=True)
class Loops:
    """Closed loops of many points that decode on pools of one kind, an entry a point.

    `n` requests ask `steps` decode steps with `beyond` tokens of context above the lowest;
    `concurrency` and `replicas` are those of the part that is simulated; before it decodes a
    request spends `before_s` at least, all prompts together keep the run busy for `busy_s`, and on
    replicas that decode as well they add `extra_s` to the work of all.
    """

    rates: Rates
    n: Array
    steps: Array
    beyond: Array
    concurrency: Array
    replicas: Array
    before_s: Array
    busy_s: Array
    extra_s: Array

    def within(self, step_s: float, share: Array) -> "Loops":
        """The same of runs in which steps take at most `step_s` for all decode steps but `share` of
        them: no such run is shorter than these few at the best rate and the others in time.

        All stages in turn and the slowest stage bound the sum of both kinds each for itself, so the
        few are taken at the rate of the looser bound.
        """
        rate = self.rates.keeping(step_s)
        if rate <= 0.0:
            return self
        late = np.minimum(share, 1.0) * self.steps
        least_s = late / self.rates.most_per_s + (self.steps - late) / rate + self.extra_s
        return replace(self, busy_s=np.maximum(self.busy_s, least_s / self.replicas))

    def most_in_flight(self) -> Array:
        """Requests that decode on a replica, on average over the run, at most: by bisection."""
        low, high = np.zeros_like(self.n), self.concurrency / self.replicas
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            fits = self._fits(middle)
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return high

    def _fits(self, in_flight: Array) -> Flags:
        """Whether so many leave room in the loop for those that do not decode yet, and a run that
        is long enough for its prompts.
        """
        with np.errstate(divide="ignore"):
            decode_s = self.steps / self.rates.steps_per_s(in_flight)
        kv_s = self.rates.kv_s * self.beyond
        each = self.concurrency / self.replicas
        free_s = decode_s * (each - in_flight) + kv_s * (each - 1.0) + self.extra_s * each
        whole_s = (decode_s + kv_s + self.extra_s) / self.replicas
        found: Flags = (free_s >= self.n * self.before_s) & (whole_s >= self.busy_s)
        return found

    def corners(self) -> tuple[Array, Array]:
        """Seconds of the run and of a decode step, at least, by point and corner."""
        top = np.maximum(self.most_in_flight(), 1e-6)
        slowest = top / self.rates.steps_per_s(top)
        share = np.arange(CORNERS) / CORNERS
        least = self.rates.least_s
        levels = slowest[:, None] * (least / np.maximum(slowest, least))[:, None] ** share[None, :]
        between = np.minimum(self.rates.in_flight_at(levels[:, 1:]), top[:, None])
        in_flight = np.minimum.accumulate(np.column_stack([top, between]), axis=1)
        per_s = self.rates.steps_per_s(in_flight)
        kv_s = (self.rates.kv_s * self.beyond)[:, None]
        extra_s = self.extra_s[:, None]
        duration_s = (self.steps[:, None] / per_s + kv_s + extra_s) / self.replicas[:, None]
        per_step = in_flight / per_s + kv_s / np.maximum(self.steps, 1.0)[:, None]
        step_s = np.column_stack([per_step[:, 1:], np.full(len(top), least)])
        return np.maximum(duration_s, self.busy_s[:, None]), np.maximum(step_s, least)
