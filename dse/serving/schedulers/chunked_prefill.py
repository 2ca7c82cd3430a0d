"""Chunked prefill: decodes first, then prompt chunks, up to a token budget (Sarathi-Serve,
arXiv:2403.02310; the rule of vLLM v1 and SGLang).
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
class ChunkedPrefill(Scheduler):
    """Every running request moves towards the tokens known so far; what is left of the budget
    admits waiting ones in order of `policy`. `reserve_prompt`: admission needs room for the whole
    prompt, not only its first chunk (vLLM's scheduler_reserve_full_isl).
    """

    cites: ClassVar[str] = "arXiv:2403.02310"
    cuts_prompts: ClassVar[bool] = True

    policy: Policy = "fcfs"
    reserve_prompt: bool = True
    kind: Literal["chunked_prefill"] = "chunked_prefill"

    @property
    def order_by(self) -> Policy:
        return self.policy

    def plan(self, queue: Queue, limits: Limits) -> Batch:
        batch = Batch()
        budget = continue_running(queue, batch, limits)
        if not batch.preempted:
            admit_waiting(queue, batch, limits, budget, chunked=True, reserve=self.reserve_prompt)
        return batch
