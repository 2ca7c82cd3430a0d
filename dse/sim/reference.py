"""The reference: event by event, every mechanism, any scheduler and router part."""

from collections import deque

import numpy as np

from dse.serving.request import Request
from dse.sim.clock import Clock
from dse.sim.cluster import Cluster
from dse.sim.drafts import Drafts
from dse.sim.log import Log
from dse.sim.outcome import Outcome
from dse.sim.spec import PoolSpec, RunSpec
from dse.sim.traffic import Keys, Requests, content_keys


def run_reference(spec: RunSpec, requests: Requests, log: Log | None = None) -> Outcome:
    """Simulate `requests` (all of which the engines accept), one step at a time."""
    return _Run(spec, requests, log).run()


class _Run:
    """One run: the source of requests, one cluster a pool, and the hand-over between them."""

    def __init__(self, spec: RunSpec, requests: Requests, log: Log | None) -> None:
        self.spec, self.requests, self.log = spec, requests, log
        self.clock = Clock()
        drafts = Drafts(spec.n_draft, spec.acceptance, requests.seed)
        last = len(spec.pools) - 1
        self.clusters = [
            Cluster(
                pool,
                spec.router,
                self.clock,
                drafts,
                self._finished if i == last else self._hand_over,
                log,
            )
            for i, pool in enumerate(spec.pools)
        ]
        # Only the pool that prefills shares content; a decode pool receives KV of its own.
        self.keys = _keys(spec.pools[0], requests)
        self.done: list[Request | None] = [None] * len(requests)
        self.asked_s = np.full(len(requests), np.nan)
        self.first: dict[int, Request] = {}
        self.successor = {int(f): i for i, f in enumerate(requests.follows) if f >= 0}
        self.roots = deque(np.flatnonzero(requests.follows < 0).tolist())

    def run(self) -> Outcome:
        if self.requests.concurrency:
            for _ in range(min(self.requests.concurrency, len(self.roots))):
                self._ask(self.roots.popleft(), 0.0)
        else:
            for root in self.roots:
                self._ask(root, float(self.requests.arrival_s[root]))
        self.clock.run()
        return Outcome.of(self.done, self.asked_s, [c.totals for c in self.clusters])

    def _ask(self, index: int, time_s: float) -> None:
        self.asked_s[index] = time_s
        osl = int(self.requests.osl_tokens[index])
        apart = len(self.spec.pools) > 1
        request = self._request(0, index, 1 if apart else osl)
        self._take(0, request, time_s)

    def _request(self, pool: int, index: int, osl_tokens: int) -> Request:
        return Request(
            index=index,
            arrival_s=float(self.asked_s[index]),
            isl_tokens=int(self.requests.isl_tokens[index]),
            osl_tokens=osl_tokens,
            keys=self.keys.of(index) if pool == 0 and self.keys.n_keys else (),
        )

    def _take(self, pool: int, request: Request, time_s: float) -> None:
        priority = int(self.requests.priority[request.index])
        arrival_s = self.spec.pools[pool].arrival_s if pool == 0 else 0.0
        self.clusters[pool].take(request, time_s + arrival_s, priority)

    def _hand_over(self, prefilled: Request) -> None:
        """Prefill is done: its first token is out, the KV travels, the rest is decoded there."""
        index, now_s = prefilled.index, self.clock.now_s
        osl = int(self.requests.osl_tokens[index])
        if osl == 1:
            self._finished(prefilled)
            return
        self.first[index] = prefilled
        request = self._request(1, index, osl)
        request.computed_tokens = request.isl_tokens
        request.generated_tokens = 1
        request.first_token_s = request.last_token_s = prefilled.first_token_s
        arrived_s = now_s + self.spec.transfer_s(request.isl_tokens)
        if self.log is not None:
            self.log.add("transferred", arrived_s, index, -1)
        self._take(1, request, arrived_s)

    def _finished(self, request: Request) -> None:
        index, now_s = request.index, self.clock.now_s
        before = self.first.pop(index, None)
        if before is not None:
            request.hit_tokens = before.hit_tokens
            request.admitted_s = before.admitted_s
            request.n_preemptions += before.n_preemptions
        self.done[index] = request
        if self.log is not None:
            self.log.add("first_token", request.first_token_s, index, -1)
            self.log.add("finished", now_s, index, -1)
        following = self.successor.get(index)
        if following is not None:
            self._ask(following, now_s + float(self.requests.think_s[following]))
        elif self.requests.concurrency and self.roots:
            self._ask(self.roots.popleft(), now_s)


def _keys(pool: PoolSpec, requests: Requests) -> Keys:
    return content_keys(requests, pool.kv.block_tokens if pool.kv.shares else 1 << 60)
