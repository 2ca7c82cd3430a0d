"""What a run leaves: times of every request and sums over steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.base.errors import SimulationError
from dse.serving.request import Request
from dse.sim.totals import Totals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Per request, in order of the request list: when it was asked, admitted, had its first and its
    last token (seconds), how often it was preempted, prompt tokens found in cache; `totals` by
    pool.
    """

    asked_s: Floats
    admitted_s: Floats
    first_token_s: Floats
    finish_s: Floats
    n_preemptions: Ints
    hit_tokens: Ints
    totals: tuple[Totals, ...]

    @classmethod
    def of(
        cls, done: Sequence[Request | None], asked_s: Floats, totals: Sequence[Totals]
    ) -> "Outcome":
        """Collect the finished requests; SimulationError if one is lost."""
        lost = [i for i, request in enumerate(done) if request is None]
        if lost:
            raise SimulationError(
                f"{len(lost)} of {len(done)} requests never finished", f"{lost[:5]}"
            )
        found = [request for request in done if request is not None]
        return cls(
            asked_s=asked_s,
            admitted_s=np.array([r.admitted_s for r in found]),
            first_token_s=np.array([r.first_token_s for r in found]),
            finish_s=np.array([r.finish_s for r in found]),
            n_preemptions=np.array([r.n_preemptions for r in found], dtype=np.int64),
            hit_tokens=np.array([r.hit_tokens for r in found], dtype=np.int64),
            totals=tuple(totals),
        )
