"""The contract of a scheduler, and the moves that schedulers are made of."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from dse.serving.batch import Batch, Chunk
from dse.serving.request import Request

Policy = Literal["fcfs", "shortest", "priority"]


class Queue(Protocol):
    """What a scheduler may see and do on one rank: `running` in order of admission, the request
    that waits longest, and the KV pool.
    """

    running: list[Request]

    def waiting(self) -> Request | None:
        """The first request in line; None where there is none."""
        ...

    def admit(self, request: Request) -> None:
        """Move the first in line to the running, its cached prefix counted as computed."""
        ...

    def preempt(self, request: Request) -> None:
        """Take a running request's blocks; it waits again and will be computed from the start."""
        ...

    def cached_tokens(self, request: Request) -> int:
        """Leading tokens of a waiting request that the KV pool still holds."""
        ...

    def can_admit(self, request: Request, tokens: int) -> bool:
        """Whether the pool has room for `tokens` tokens of a waiting request."""
        ...

    def grow(self, request: Request, tokens: int) -> bool:
        """Give a running request room for `tokens` tokens; False, and nothing done, if there is
        none.
        """
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What one step may hold: `max_tokens` new tokens, `max_seqs` requests, `q_tokens` tokens of a
    decoding request.
    """

    max_tokens: int
    max_seqs: int
    q_tokens: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """Decides over waiting and running requests; holds no state of its own.

    `cuts_prompts`: no step computes more prompt tokens than its budget. Without it a prompt is
    computed whole, also one beyond the budget.
    """

    cites: ClassVar[str] = ""
    cuts_prompts: ClassVar[bool] = False

    def plan(self, queue: Queue, limits: Limits) -> Batch:
        """The batch of the next step, its blocks given."""
        raise NotImplementedError

    @property
    def order_by(self) -> Policy:
        """What waiting requests are ranked by: arrival, prompt length or stated priority."""
        return "fcfs"


def continue_running(queue: Queue, batch: Batch, limits: Limits) -> int:
    """Move every running request on, oldest first, and return what is left of the token budget.

    A request that finds no block takes those of the youngest running one; if that is itself, it
    waits again.
    """
    budget = limits.max_tokens
    position = 0
    while position < len(queue.running) and budget > 0:
        request = queue.running[position]
        chunk = _next_chunk(request, budget, limits)
        while not queue.grow(request, _room(chunk)):
            victim = queue.running[-1]
            queue.preempt(victim)
            batch.preempted.append(victim)
            if victim is request:
                return budget
        batch.chunks.append(chunk)
        budget -= chunk.new_tokens
        position += 1
    return budget


def admit_waiting(
    queue: Queue, batch: Batch, limits: Limits, budget: int, *, chunked: bool, reserve: bool
) -> None:
    """Admit waiting requests in order while budget, places and blocks last.

    Unless `chunked`, a prompt is computed whole, and one beyond the budget only as the first.
    `reserve` asks for room for the whole prompt before the first of its chunks.
    """
    while budget > 0 and len(queue.running) < limits.max_seqs:
        request = queue.waiting()
        if request is None:
            return
        cached = queue.cached_tokens(request)
        left = request.known_tokens - cached
        if not chunked and left > budget and batch.chunks:
            return
        chunk = _first_chunk(request, cached, min(left, budget) if chunked else left, limits)
        asked = max(_room(chunk), request.known_tokens if reserve else 0)
        if not queue.can_admit(request, asked):
            return
        queue.admit(request)
        queue.grow(request, _room(chunk))
        batch.chunks.append(chunk)
        batch.admitted.append(request)
        budget -= chunk.new_tokens


def _first_chunk(request: Request, cached: int, new: int, limits: Limits) -> Chunk:
    """A request whose whole context is there (computed elsewhere, or kept) goes on decoding."""
    if request.generated_tokens > 0 and cached == request.known_tokens - 1:
        return Chunk(request, limits.q_tokens, cached, is_decode=True)
    return Chunk(request, new, cached, is_decode=False)


def _next_chunk(request: Request, budget: int, limits: Limits) -> Chunk:
    if request.is_decoding:
        return Chunk(request, limits.q_tokens, request.computed_tokens, is_decode=True)
    new = min(request.known_tokens - request.computed_tokens, budget)
    return Chunk(request, new, request.computed_tokens, is_decode=False)


def _room(chunk: Chunk) -> int:
    """Tokens that the cache must hold after a chunk; drafts beyond the last token need no room."""
    request = chunk.request
    if not chunk.is_decode:
        return chunk.context_tokens + chunk.new_tokens
    left = request.osl_tokens - request.generated_tokens
    return chunk.context_tokens + min(chunk.new_tokens, left)
