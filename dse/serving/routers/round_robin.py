"""Round robin: each rank in turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.serving.request import Request
from dse.serving.routers._base import Router, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin(Router):
    """The n-th request goes to rank n modulo their number."""

    is_stateless: ClassVar[bool] = True

    kind: Literal["round_robin"] = "round_robin"

    def pick(self, request: Request, targets: Sequence[Target], n_before: int) -> int:
        return n_before % len(targets)
