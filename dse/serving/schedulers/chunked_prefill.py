"""Chunked prefill: decodes first, then prompt chunks, up to a token budget (Sarathi-Serve,
arXiv:2403.02310; the rule of vLLM v1 and SGLang).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.serving.schedulers._base import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedPrefill(Scheduler):
    """Every running request moves towards the tokens known so far; what is left of the budget
    admits waiting ones in order of `policy`.
    """

    cites: ClassVar[str] = "arXiv:2403.02310"

    policy: Literal["fcfs", "shortest", "priority"] = "fcfs"
    kind: Literal["chunked_prefill"] = "chunked_prefill"
