"""The curves of many closed loops at once (see `trade`): seconds of runs against those of steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.search.dominance import Flags, Places
from dse.search.envelope import Array
from dse.search.trade import Rates

_HALVINGS = 24
# Corners of a curve, in equal ratios of the seconds of a step.
CORNERS = 40


@dataclass(frozen=True, slots=True)
class Several:
    """Rates of many points: those of one kind of pool stand together, in the rows of its slice."""

    groups: tuple[tuple[Rates, slice], ...]

    @classmethod
    def of(cls, rates: Sequence[Rates], sizes: Places) -> "Several":
        """So many points of each."""
        ends = np.cumsum(sizes).tolist()
        slices = map(slice, [0, *ends[:-1]], ends)
        return cls(tuple(zip(rates, slices, strict=True)))

    def each(self, of: Callable[[Rates], float]) -> Array:
        """A number of its pool for each point."""
        sizes = [rows.stop - rows.start for _, rows in self.groups]
        return np.repeat(np.array([of(rates) for rates, _ in self.groups], dtype=float), sizes)

    def by_pool(self, of: Callable[[Rates], Callable[[Array], Array]], x: Array) -> Array:
        """A function of its pool at each point's `x`, whose first axis is the points."""
        found = np.empty_like(x)
        for rates, rows in self.groups:
            found[rows] = of(rates)(x[rows])
        return found

    def steps_per_s(self, in_flight: Array) -> Array:
        """See `Rates.steps_per_s`."""
        return self.by_pool(lambda rates: rates.steps_per_s, in_flight)

    def in_flight_at(self, step_s: Array) -> Array:
        """See `Rates.in_flight_at`."""
        return self.by_pool(lambda rates: rates.in_flight_at, step_s)


@dataclass(frozen=True, kw_only=True)
class Loops:
    """Closed loops of many points, an entry a point.

    `n` requests ask `steps` decode steps with `beyond` tokens of context above the lowest;
    `concurrency` and `replicas` are those of the part that is simulated; before it decodes a
    request spends `before_s` at least, all prompts together keep the run busy for `busy_s`, and on
    replicas that decode as well they add `extra_s` to the work of all.
    """

    rates: Several
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
        rate = self.rates.each(lambda rates: rates.keeping(step_s))
        late = np.minimum(share, 1.0) * self.steps
        with np.errstate(divide="ignore", invalid="ignore"):
            in_time_s = (self.steps - late) / rate
        least_s = late / self.rates.each(lambda rates: rates.most_per_s) + in_time_s + self.extra_s
        busy_s = np.maximum(self.busy_s, least_s / self.replicas)
        return replace(self, busy_s=np.where(rate > 0.0, busy_s, self.busy_s))

    def most_in_flight(self) -> Array:
        """Requests that decode on a replica, on average over the run, at most: by bisection.

        So many leave room in the loop for those that do not decode yet, and make a run that is long
        enough for its prompts.
        """
        each = self.concurrency / self.replicas
        low, high = np.zeros_like(self.n), each
        kv_s = self._kv_s()
        waiting_s, before_s = kv_s * (each - 1.0), self.n * self.before_s
        shared_s = self.extra_s * each
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            with np.errstate(divide="ignore"):
                decode_s = self.steps / self.rates.steps_per_s(middle)
            free_s = decode_s * (each - middle) + waiting_s + shared_s
            whole_s = (decode_s + kv_s + self.extra_s) / self.replicas
            fits: Flags = (free_s >= before_s) & (whole_s >= self.busy_s)
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return high

    def corners(self, n: int) -> tuple[Array, Array]:
        """Seconds of the run and of a decode step, at least, by point and corner, of which there
        are `n`: one is the box around all.
        """
        top = np.maximum(self.most_in_flight(), 1e-6)
        slowest = top / self.rates.steps_per_s(top)
        least = self.rates.each(lambda rates: rates.least_s)
        ratio = least / np.maximum(slowest, least)
        levels = slowest[:, None] * ratio[:, None] ** (np.arange(1, n) / n)[None, :]
        between = np.minimum(self.rates.in_flight_at(levels), top[:, None])
        in_flight = np.minimum.accumulate(np.column_stack([top, between]), axis=1)
        per_s = self.rates.steps_per_s(in_flight)
        kv_s, extra_s = self._kv_s()[:, None], self.extra_s[:, None]
        duration_s = (self.steps[:, None] / per_s + kv_s + extra_s) / self.replicas[:, None]
        per_step = in_flight[:, 1:] / per_s[:, 1:] + kv_s / np.maximum(self.steps, 1.0)[:, None]
        step_s = np.column_stack([per_step, least])
        return np.maximum(duration_s, self.busy_s[:, None]), np.maximum(step_s, least[:, None])

    def _kv_s(self) -> Array:
        """Seconds that the contexts above the lowest add to all work."""
        return self.rates.each(lambda rates: rates.kv_s) * self.beyond
