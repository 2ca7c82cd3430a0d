"""The steps of a closed loop, whatever they cost.

Where all requests in flight have room, what a step computes does not depend on how long steps take:
who decodes follows from lengths, who prefills from the token budget, and who is asked next from
who has finished. So the schedule is laid out once for a load, in steps, and priced for every
deployment that is asked the same. It is that of `dse.sim`: round robin over ranks in lock-step,
chunked prefill in order of arrival.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from dse.search.envelope import Array

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What shapes a schedule beside the requests.

    A request that takes a while to reach the engine misses `missed` steps that only decode, or one
    that also prefills, whichever is over first. `prefills_first`: a rank computes whole prompts
    while any wait, and its decoding requests pause.
    """

    concurrency: int
    dp: int
    budget: int
    seats: int
    missed: int
    prefills_first: bool = False


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Rows of equal steps.

    By row and rank: decoding requests `n`, their `context` in the first step (it grows by `n` a
    step), prompt tokens `new` and `n_chunks`, `held` tokens of KV and `n_held` requests at its end.
    `length` is a row's steps; `idle` lists the rows before which the engine waits for a request.
    `chunks` has a line for each chunk: row, rank, new and cached tokens. `asked` (−1: at the
    start), `first` and `last` are the rows at whose ends a request is asked, has its first and
    last token; before `joined` it reaches its rank.
    """

    length: Array
    n: Array
    context: Array
    new: Array
    n_chunks: Array
    held: Array
    n_held: Array
    idle: Ints
    chunks: Ints
    asked: Ints
    joined: Ints
    first: Ints
    last: Ints

    @property
    def size(self) -> int:
        """Cells of its rows."""
        return int(self.n.size)


def schedule(isl: Array, osl: Array, terms: Terms) -> Schedule | None:
    """The schedule of requests in order; None where a batch outgrows the budget of a step."""
    return _Loop(isl.astype(int).tolist(), osl.astype(int).tolist(), terms).run()


@dataclass(slots=True)
class _Rank:
    """One rank: who waits, who is half prefilled, who decodes until which of its decode steps."""

    waiting: deque[int] = field(default_factory=deque)
    partial: tuple[int, int] | None = None
    ends: list[tuple[int, int]] = field(default_factory=list)
    # Decode steps so far, and Σ over decoding requests of context less that number.
    clock: int = 0
    base: int = 0

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting or self.ends or self.partial)


class _Loop:
    def __init__(self, isl: list[int], osl: list[int], terms: Terms) -> None:
        self.isl, self.osl, self.terms = isl, osl, terms
        self.ranks = [_Rank() for _ in range(terms.dp)]
        self.asked, self.joined, self.first, self.last = ([-1] * len(isl) for _ in range(4))
        self.rows: list[tuple[int, list[tuple[int, ...]]]] = []
        self.idle: list[int] = []
        self.chunks: list[tuple[int, int, int, int]] = []
        self.n_asked = self.n_routed = 0
        self.step, self.prefilled_at = 0, -1
        # (step at whose end it was asked, request), in order.
        self.due: deque[tuple[int, int]] = deque()

    def run(self) -> Schedule | None:
        self._ask(min(self.terms.concurrency, len(self.isl)), -1, -1)
        while self.due or any(rank.is_busy for rank in self.ranks):
            self._arrive()
            if any(len(rank.ends) > self.terms.budget for rank in self.ranks):
                return None
            self._row()
        return self._schedule()

    def _ask(self, count: int, row: int, step: int) -> None:
        """Ask the next requests at the end of `row`, whose last step is `step`."""
        for _ in range(min(count, len(self.isl) - self.n_asked)):
            self.asked[self.n_asked] = row
            self.due.append((step, self.n_asked))
            self.n_asked += 1

    def _arrive(self) -> None:
        """Route what reaches the engine before this step; an idle one waits for the next."""
        waits_for = None
        is_busy = any(rank.is_busy for rank in self.ranks)
        if not is_busy and not (self.rows and self._is_here(self.due[0][0])):
            waits_for = self.due[0][0]
            self.idle.append(len(self.rows))
        while self.due and (self.due[0][0] == waits_for or self._is_here(self.due[0][0])):
            _, index = self.due.popleft()
            self.ranks[self.n_routed % self.terms.dp].waiting.append(index)
            self.joined[index] = len(self.rows)
            self.n_routed += 1

    def _is_here(self, asked_at: int) -> bool:
        passed = self.step - asked_at - 1
        return passed >= self.terms.missed or self.prefilled_at > asked_at

    def _row(self) -> None:
        row, step = len(self.rows), self.step
        through: list[list[int]] = []
        cells = []
        for number, rank in enumerate(self.ranks):
            held = rank.base + len(rank.ends) * rank.clock
            done, new, n_chunks, prompts = self._prefill(number, rank, row)
            through.append(done)
            decodes = not (self.terms.prefills_first and n_chunks)
            cells.append((decodes, len(rank.ends), held, new, n_chunks, prompts))
        prefills = any(cell[4] for cell in cells)
        length = 1 if self.due or prefills else self._until_an_end()
        self.rows.append(
            (
                length,
                [
                    (n * decodes, held, new, n_chunks, held + n * length + prompts, n + n_chunks)
                    for decodes, n, held, new, n_chunks, prompts in cells
                ],
            )
        )
        finished = 0
        for rank, done, (decodes, *_) in zip(self.ranks, through, cells, strict=True):
            if decodes:
                rank.clock += length
                finished += self._finish(rank, row)
            finished += self._start_decoding(rank, done, row)
        if prefills:
            self.prefilled_at = step
        self._ask(finished, row, step + length - 1)
        self.step = step + length

    def _prefill(self, number: int, rank: _Rank, row: int) -> tuple[list[int], int, int, int]:
        """Fill the budget that decoding leaves: who is through, tokens, chunks, tokens held."""
        whole = self.terms.prefills_first
        left = self.terms.budget - (0 if whole else len(rank.ends))
        done: list[int] = []
        new = n_chunks = held = 0
        while left > 0:
            if rank.partial is None:
                running = len(rank.ends) + len(done)
                if not rank.waiting or running >= self.terms.seats:
                    break
                if whole and n_chunks and self.isl[rank.waiting[0]] > left:
                    break
                rank.partial = (rank.waiting.popleft(), 0)
            index, cached = rank.partial
            size = self.isl[index] if whole else min(self.isl[index] - cached, left)
            self.chunks.append((row, number, size, cached))
            left, new, n_chunks = left - size, new + size, n_chunks + 1
            held += self.isl[index]
            if cached + size == self.isl[index]:
                done.append(index)
                rank.partial = None
            else:
                rank.partial = (index, cached + size)
        return done, new, n_chunks, held

    def _until_an_end(self) -> int:
        """Steps until the next request finishes."""
        return min(rank.ends[0][0] - rank.clock + 1 for rank in self.ranks if rank.ends)

    def _finish(self, rank: _Rank, row: int) -> int:
        count = 0
        while rank.ends and rank.ends[0][0] < rank.clock:
            end, index = heappop(rank.ends)
            rank.base -= self.isl[index] - (end - self.osl[index] + 1)
            self.last[index] = row
            count += 1
        return count

    def _start_decoding(self, rank: _Rank, done: list[int], row: int) -> int:
        count = 0
        for index in done:
            self.first[index] = row
            if self.osl[index] == 1:
                self.last[index] = row
                count += 1
            else:
                heappush(rank.ends, (rank.clock + self.osl[index] - 2, index))
                rank.base += self.isl[index] + 1 - rank.clock
        return count

    def _schedule(self) -> Schedule:
        cells = np.array([row for _, row in self.rows], dtype=float)
        columns = [cells[:, :, i] for i in range(cells.shape[2])]
        n, context, new, n_chunks, held, n_held = columns
        return Schedule(
            length=np.array([length for length, _ in self.rows], dtype=float),
            n=n,
            context=context,
            new=new,
            n_chunks=n_chunks,
            held=held,
            n_held=n_held,
            idle=np.array(self.idle),
            chunks=np.array(self.chunks, dtype=np.int64).reshape(-1, 4),
            asked=np.array(self.asked),
            joined=np.array(self.joined),
            first=np.array(self.first),
            last=np.array(self.last),
        )
