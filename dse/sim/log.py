"""What happened, as rows: written by the reference only, when asked."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dse.sim.replica import Replica, Step


class Event(NamedTuple):
    """`kind` at `time_s`: queued, admitted (`amount` = prefix tokens hit), preempted, first_token,
    finished, transferred, rejected of `request`; or step (`request` −1), then with its end, the
    requests and tokens it computes, those waiting, and KV units in use.
    """

    kind: str
    time_s: float
    request: int
    replica: int
    amount: float = 0.0
    end_s: float = 0.0
    n_seqs: int = 0
    n_tokens: int = 0
    n_waiting: int = 0
    kv_units: int = 0


@dataclass(slots=True)
class Log:
    """Events in order of time."""

    events: list[Event] = field(default_factory=list)

    def add(
        self, kind: str, time_s: float, request: int, replica: int, amount: float = 0.0
    ) -> None:
        """Note one event of a request."""
        self.events.append(Event(kind, time_s, request, replica, amount))

    def add_step(self, replica: "Replica", step: "Step", index: int) -> None:
        """Note a step that begins, after those it admitted and preempted."""
        for batch in step.batches:
            for request in batch.preempted:
                self.add("preempted", step.start_s, request.index, index)
            for chunk in batch.chunks:
                if chunk.request in batch.admitted:
                    hit = chunk.context_tokens
                    self.add("admitted", step.start_s, chunk.request.index, index, hit)
        self.events.append(
            Event(
                "step",
                step.start_s,
                -1,
                index,
                end_s=step.end_s,
                n_seqs=sum(len(batch.chunks) for batch in step.batches),
                n_tokens=sum(c.new_tokens for batch in step.batches for c in batch.chunks),
                n_waiting=sum(rank.n_waiting for rank in replica.ranks),
                kv_units=sum(rank.kv.used_units for rank in replica.ranks),
            )
        )
