"""One engine: plan a step on every rank, price it, and advance its requests when it ends."""

from collections.abc import Callable
from dataclasses import dataclass

from dse.cost.step import RankLoad, StepCost
from dse.serving.batch import Batch
from dse.serving.request import Request
from dse.serving.schedulers import Limits, Scheduler
from dse.sim.drafts import Drafts
from dse.sim.kv import KVPool
from dse.sim.rank import Rank, load_of
from dse.sim.totals import Totals


@dataclass(slots=True)
class Step:
    """One micro-batch in flight: `free_s` when the first stage takes the next, `end_s` when its
    tokens are out.
    """

    slot: int
    batches: list[Batch]
    loads: list[RankLoad]
    start_s: float
    free_s: float
    end_s: float


class Replica:
    """`dp` ranks in lock-step and `pp` micro-batches in flight over one set of tables."""

    def __init__(
        self,
        cost: StepCost,
        scheduler: Scheduler,
        limits: Limits,
        pools: list[KVPool],
        n_slots: int,
        drafts: Drafts,
        totals: Totals,
    ) -> None:
        self.cost, self.scheduler, self.limits = cost, scheduler, limits
        self.ranks = [Rank(kv, n_slots) for kv in pools]
        self.in_flight: list[Step | None] = [None] * n_slots
        self.free_s = 0.0
        self._next_slot = 0
        self.drafts, self.totals = drafts, totals

    def start(self, now_s: float) -> Step | None:
        """Begin the next micro-batch, if the first stage is free and an idle slot finds work."""
        n_slots = len(self.in_flight)
        if now_s < self.free_s:
            return None
        for offset in range(n_slots):
            slot = (self._next_slot + offset) % n_slots
            if self.in_flight[slot] is not None:
                continue
            batches = [self._plan(rank, slot, now_s) for rank in self.ranks]
            if any(batch.chunks for batch in batches):
                self._next_slot = (slot + 1) % n_slots
                return self._begin(slot, batches, now_s)
        return None

    def _plan(self, rank: Rank, slot: int, now_s: float) -> Batch:
        batch = rank.plan(slot, self.scheduler, self._limits(rank, slot), now_s)
        if batch.preempted and not batch.chunks:
            # All of the slot gave way and nothing is left to run: plan again from the queue.
            again = rank.plan(slot, self.scheduler, self._limits(rank, slot), now_s)
            again.preempted[:0] = batch.preempted
            return again
        return batch

    def _limits(self, rank: Rank, slot: int) -> Limits:
        n_slots = len(self.in_flight)
        if n_slots == 1:
            return self.limits
        # Micro-batches share the requests evenly.
        share = -(-rank.n_requests // n_slots)
        seats = -(-self.limits.max_seqs // n_slots)
        return Limits(
            max_tokens=self.limits.max_tokens,
            max_seqs=max(min(share, seats), len(rank.slots[slot])),
            q_tokens=self.limits.q_tokens,
        )

    def _begin(self, slot: int, batches: list[Batch], now_s: float) -> Step:
        loads = [load_of(batch.chunks) for batch in batches]
        time = self.cost.seconds(loads)
        step = Step(slot, batches, loads, now_s, now_s + time.occupancy_s, now_s + time.latency_s)
        self.free_s = step.free_s
        self.in_flight[slot] = step
        self.totals.add_step(self, step, time)
        return step

    def end(self, step: Step, finished: Callable[[Request], None]) -> None:
        """Hand out the tokens of a step; requests that have all of theirs leave."""
        self.in_flight[step.slot] = None
        for rank, batch in zip(self.ranks, step.batches, strict=True):
            for chunk in batch.chunks:
                request = chunk.request
                self._advance(request, chunk.new_tokens, chunk.is_decode, step.end_s)
                rank.kv.publish(request)
                if request.is_done:
                    request.finish_s = step.end_s
                    rank.finish(request)
                    finished(request)

    def _advance(self, request: Request, new_tokens: int, is_decode: bool, end_s: float) -> None:
        if is_decode:
            left = request.osl_tokens - request.generated_tokens
            n_out = min(self.drafts.yielded(request.index, request.generated_tokens), left)
            request.computed_tokens += n_out
        else:
            request.computed_tokens += new_tokens
            n_out = 1 if request.computed_tokens == request.known_tokens else 0
        if n_out == 0:
            return
        if request.generated_tokens == 0:
            request.first_token_s = end_s
        else:
            self.totals.add_gap(end_s - request.last_token_s, 1)
        self.totals.add_gap(0.0, n_out - 1)
        request.generated_tokens += n_out
        request.last_token_s = end_s
