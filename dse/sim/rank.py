"""One attention rank: its queue, its running requests by pipeline slot, its KV pool."""

from heapq import heappop, heappush

from dse.cost.step import RankLoad
from dse.serving.batch import Batch, Chunk
from dse.serving.request import Request
from dse.serving.schedulers import Limits, Scheduler
from dse.sim.kv import KVPool


class Rank:
    """Requests of one DP rank. With pipeline parallelism each of `n_slots` micro-batches has its
    own running requests; queue and KV are common. It is the `Queue` that schedulers decide over (of
    the slot being planned) and the `Target` that routers look at.
    """

    def __init__(self, kv: KVPool, n_slots: int) -> None:
        self.kv = kv
        self.slots: list[list[Request]] = [[] for _ in range(n_slots)]
        self.running = self.slots[0]
        self._slot = 0
        self._waiting: list[tuple[int, Request]] = []
        self.now_s = 0.0

    @property
    def n_requests(self) -> int:
        return len(self._waiting) + sum(map(len, self.slots))

    @property
    def n_waiting(self) -> int:
        """Requests in line."""
        return len(self._waiting)

    def enqueue(self, request: Request) -> None:
        """Put a request in line."""
        heappush(self._waiting, (request.order, request))

    def plan(self, slot: int, scheduler: Scheduler, limits: Limits, now_s: float) -> Batch:
        """The next micro-batch of `slot`."""
        self._slot, self.running, self.now_s = slot, self.slots[slot], now_s
        return scheduler.plan(self, limits)

    def waiting(self) -> Request | None:
        return self._waiting[0][1] if self._waiting else None

    def cached_tokens(self, request: Request) -> int:
        return max(request.computed_tokens, self.kv.cached_tokens(request))

    def can_admit(self, request: Request, tokens: int) -> bool:
        return self.kv.can_admit(request, tokens)

    def admit(self, request: Request) -> None:
        heappop(self._waiting)
        cached = self.kv.cached_tokens(request)
        request.hit_tokens += cached
        self.kv.share(request)
        request.computed_tokens = max(request.computed_tokens, cached)
        request.slot = self._slot
        if request.admitted_s != request.admitted_s:
            request.admitted_s = self.now_s
        self.running.append(request)

    def grow(self, request: Request, tokens: int) -> bool:
        return self.kv.grow(request, tokens)

    def preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.kv.release(request)
        request.computed_tokens = 0
        request.n_preemptions += 1
        self.enqueue(request)

    def finish(self, request: Request) -> None:
        """Let go of a finished request."""
        self.slots[request.slot].remove(request)
        self.kv.release(request)


def load_of(chunks: list[Chunk]) -> RankLoad:
    """What the chunks of one rank cost: decodes by their sums, prompts one by one."""
    decodes = [chunk for chunk in chunks if chunk.is_decode]
    context = sum(chunk.context_tokens + chunk.new_tokens for chunk in decodes)
    prompts = tuple(
        (chunk.new_tokens, chunk.context_tokens) for chunk in chunks if not chunk.is_decode
    )
    return RankLoad(len(decodes), float(context), prompts)
