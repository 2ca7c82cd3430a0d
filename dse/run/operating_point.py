"""The highest load that keeps the SLO: bisection over a fixed grid of rates.

Every deployment is probed at the same rates, `2^(k/32)` requests per second, so that a probe is an
ordinary result that any study may reuse. A guess only chooses which rates are probed first.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

STEPS_PER_OCTAVE = 32
LOWEST_STEP = -10 * STEPS_PER_OCTAVE  # about one request in 17 minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """`req_per_s` passes and the next rate of the grid, `step_fraction` above, fails (or lies above
    the ceiling). 0 where even the lowest rate fails. `probed` are the rates tried, in order.
    """

    req_per_s: float
    step_fraction: float
    probed: tuple[float, ...]

    @property
    def n_runs(self) -> int:
        """Simulated rates."""
        return len(self.probed)


def grid_rate(step: int) -> float:
    """The rate of a step of the grid (req/s)."""
    return float(2.0 ** (step / STEPS_PER_OCTAVE))


def max_goodput(
    passes: Callable[[float], bool], *, ceiling_req_per_s: float, guess_req_per_s: float = 0.0
) -> OperatingPoint:
    """The highest rate of the grid, not above the ceiling, at which `passes` holds and whose next
    fails.

    `passes(req_per_s)` simulates; each rate is asked once. The search gallops away from the guess
    until it has a pass and a fail, then halves the steps between: where the SLO is kept up to one
    rate only, any guess finds the same.
    """
    search = _Search(passes)
    top = _step_below(ceiling_req_per_s) + 1
    start = _step_below(guess_req_per_s) if guess_req_per_s > 0 else (LOWEST_STEP + top) // 2
    start = min(max(start, LOWEST_STEP), top - 1)
    low, high = _bracket(search, start, top)
    while low is not None and high - low > 1:
        middle = (low + high) // 2
        if search.passes(middle):
            low = middle
        else:
            high = middle
    return OperatingPoint(
        req_per_s=0.0 if low is None else grid_rate(low),
        step_fraction=grid_rate(1) - 1.0,
        probed=tuple(search.probed),
    )


class _Search:
    """Asks for each step once."""

    def __init__(self, passes: Callable[[float], bool]) -> None:
        self._passes = passes
        self.probed: list[float] = []

    def passes(self, step: int) -> bool:
        rate = grid_rate(step)
        self.probed.append(rate)
        return self._passes(rate)


def _bracket(search: _Search, start: int, top: int) -> tuple[int | None, int]:
    """A step that passes (None if none does) and a higher one that fails or is out of bounds."""
    if top <= LOWEST_STEP:
        return None, top
    stride = 4
    if search.passes(start):
        low = start
        while low + stride < top:
            if not search.passes(low + stride):
                return low, low + stride
            low, stride = low + stride, 2 * stride
        return low, top
    high = start
    while high - stride > LOWEST_STEP:
        if search.passes(high - stride):
            return high - stride, high
        high, stride = high - stride, 2 * stride
    if high > LOWEST_STEP and search.passes(LOWEST_STEP):
        return LOWEST_STEP, high
    return None, high


def _step_below(req_per_s: float) -> int:
    """The highest step whose rate is not above `req_per_s`."""
    step = math.floor(math.log2(req_per_s) * STEPS_PER_OCTAVE)
    return step + 1 if grid_rate(step + 1) <= req_per_s else step
