"""A fixed batch: requests enter together and none joins until all are done (offline benchmarks,
FasterTransformer).
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dse.serving.batch import Batch
from dse.serving.schedulers._base import (
    Limits,
    Queue,
    Scheduler,
    admit_waiting,
    continue_running,
)

NO_LIMIT_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Static(Scheduler):
    """Up to `max_num_seqs` prompts in one step, whatever their tokens, then decode to the last."""

    cites: ClassVar[str] = "Orca, OSDI 2022, section 2"

    kind: Literal["static"] = "static"

    def plan(self, queue: Queue, limits: Limits) -> Batch:
        batch = Batch()
        whole = replace(limits, max_tokens=NO_LIMIT_TOKENS)
        if queue.running:
            continue_running(queue, batch, whole)
        else:
            admit_waiting(queue, batch, whole, NO_LIMIT_TOKENS, chunked=False, reserve=True)
        return batch
