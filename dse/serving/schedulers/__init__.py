"""The scheduler family: which requests the next step computes, and how many tokens of each."""

from dse.base.family import Family
from dse.serving.schedulers._base import Limits, Policy, Queue, Scheduler
from dse.serving.schedulers.chunked_prefill import ChunkedPrefill
from dse.serving.schedulers.prefill_first import PrefillFirst
from dse.serving.schedulers.static import Static

SCHEDULERS = Family(__name__, Scheduler)
DEFAULT_SCHEDULER = ChunkedPrefill()

__all__ = [
    "DEFAULT_SCHEDULER",
    "SCHEDULERS",
    "ChunkedPrefill",
    "Limits",
    "Policy",
    "PrefillFirst",
    "Queue",
    "Scheduler",
    "Static",
]
