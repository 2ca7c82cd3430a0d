"""The replicas of one pool behind a router, on one clock."""

from collections.abc import Callable

from dse.cost.tally import Tally
from dse.serving.request import Request
from dse.serving.routers import Router
from dse.sim.clock import ARRIVES, PLANS, STEP_ENDS, Clock
from dse.sim.drafts import Drafts
from dse.sim.log import Log
from dse.sim.rank import Rank
from dse.sim.replica import Replica, Step
from dse.sim.spec import PoolSpec
from dse.sim.totals import Totals

ORDER_BITS = 40


class Cluster:
    """Takes requests, routes each to a rank for good, and hands finished ones to `finished`."""

    def __init__(
        self,
        spec: PoolSpec,
        router: Router,
        clock: Clock,
        drafts: Drafts,
        finished: Callable[[Request], None],
        log: Log | None,
    ) -> None:
        self.spec, self.router, self.clock, self.log = spec, router, clock, log
        self.finished = finished
        self.totals = Totals(tally=Tally.empty(spec.cost.grid))
        self.replicas = [
            Replica(
                spec.cost,
                spec.scheduler,
                spec.limits,
                [spec.kv.pool() for _ in range(spec.dp)],
                spec.pp,
                drafts,
                self.totals,
            )
            for _ in range(spec.n_replicas)
        ]
        self.targets: list[tuple[int, Rank]] = [
            (i, rank) for i, replica in enumerate(self.replicas) for rank in replica.ranks
        ]
        self._planned: dict[int, float] = {}
        self._n_routed = 0

    def take(self, request: Request, time_s: float, priority: int = 0) -> None:
        """Route `request` when it reaches the engine at `time_s`."""
        self.clock.at(time_s, ARRIVES, lambda: self._route(request, priority))

    def _route(self, request: Request, priority: int) -> None:
        ranks = [rank for _, rank in self.targets]
        index, rank = self.targets[self.router.pick(request, ranks, self._n_routed)]
        order_by = self.spec.scheduler.order_by
        rank_by = {"fcfs": 0, "shortest": request.isl_tokens, "priority": priority}[order_by]
        request.order = (rank_by << ORDER_BITS) + self._n_routed
        self._n_routed += 1
        rank.enqueue(request)
        if self.log is not None:
            self.log.add("queued", self.clock.now_s, request.index, index)
        self._plan_soon(index, self.clock.now_s)

    def _plan_soon(self, index: int, time_s: float) -> None:
        if self._planned.get(index) != time_s:
            self._planned[index] = time_s
            self.clock.at(time_s, PLANS + index, lambda: self._start(index))

    def _start(self, index: int) -> None:
        self._planned.pop(index, None)
        step = self.replicas[index].start(self.clock.now_s)
        if step is None:
            return
        if self.log is not None:
            self.log.add_step(self.replicas[index], step, index)
        self.clock.at(step.end_s, STEP_ENDS, lambda: self._end(index, step))
        if step.free_s < step.end_s:
            self._plan_soon(index, step.free_s)

    def _end(self, index: int, step: Step) -> None:
        self.replicas[index].end(step, self.finished)
        self._plan_soon(index, self.clock.now_s)
