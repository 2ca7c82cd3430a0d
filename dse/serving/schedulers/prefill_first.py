"""Prefill first: a step computes whole waiting prompts if there are any, else one token of every
running request (Orca, OSDI 2022; vLLM v0, TensorRT-LLM without chunking).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.serving.batch import Batch
from dse.serving.schedulers._base import (
    Limits,
    Policy,
    Queue,
    Scheduler,
    admit_waiting,
    continue_running,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillFirst(Scheduler):
    """Prompts in order of `policy` up to the token budget; decodes wait meanwhile."""

    cites: ClassVar[str] = "Orca, OSDI 2022"

    policy: Policy = "fcfs"
    kind: Literal["prefill_first"] = "prefill_first"

    @property
    def order_by(self) -> Policy:
        return self.policy

    def plan(self, queue: Queue, limits: Limits) -> Batch:
        batch = Batch()
        admit_waiting(queue, batch, limits, limits.max_tokens, chunked=False, reserve=True)
        if not batch.chunks:
            continue_running(queue, batch, limits)
        return batch
