"""Virtual time: a heap of (time, priority, order, action)."""

from collections.abc import Callable
from heapq import heappop, heappush

# At one instant steps end, then requests arrive, then engines plan, replica by replica: a request
# that comes as a step ends is in the next one.
STEP_ENDS, ARRIVES, PLANS = range(3)


class Clock:
    """Runs actions in order of time, then priority, then of being scheduled."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, int, Callable[[], None]]] = []
        self._order = 0

    def at(self, time_s: float, priority: int, action: Callable[[], None]) -> None:
        """Schedule `action` at `time_s`, not before now."""
        heappush(self._heap, (time_s, priority, self._order, action))
        self._order += 1

    def run(self) -> None:
        """Run until nothing is scheduled."""
        while self._heap:
            self.now_s, _, _, action = heappop(self._heap)
            action()
