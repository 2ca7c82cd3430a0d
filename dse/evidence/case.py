"""A measured row made a prediction task: what was deployed, what was asked, what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dse.serving.deployment import Deployment
from dse.serving.workload import Workload

__all__ = ["METRICS", "Case"]

METRICS: Final = ("ttft_s", "tpot_s", "e2e_s", "output_tok_per_s", "total_tok_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured row.

    `measured` holds the metrics that it gives, `statistic` whether latencies are a `mean` or the
    median (`p50`). `labels` name its slices (`gpu`, `engine`, `model`, `class`, `source`, `grade`).
    Without a deployment `reason` says why it cannot be predicted; `set_aside` names the cleaning
    rule that keeps a predicted row out of the clean slice. An engine that looks for new requests
    once in `poll_steps` decode steps keeps them waiting for half of that.
    """

    key: str
    labels: Mapping[str, str]
    measured: Mapping[str, float]
    statistic: str = "p50"
    deployment: Deployment | None = field(default=None, repr=False)
    workload: Workload | None = field(default=None, repr=False)
    poll_steps: int = 1
    reason: str = ""
    set_aside: str = ""
