"""Join the shortest queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.serving.request import Request
from dse.serving.routers._base import Router, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLoaded(Router):
    """The rank with the fewest requests waiting or running; the first of equals."""

    cites: ClassVar[str] = "Weber, J. Appl. Prob. 15 (1978)"

    kind: Literal["least_loaded"] = "least_loaded"

    def pick(self, request: Request, targets: Sequence[Target], n_before: int) -> int:
        return min(range(len(targets)), key=lambda i: (targets[i].n_requests, i))
