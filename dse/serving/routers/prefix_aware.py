"""Send a request where its prefix is cached."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.serving.request import Request
from dse.serving.routers._base import Router, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixAware(Router):
    """The rank that holds most of the prompt, among equals the least loaded; a rank that is busier
    than the idlest by more than `max_imbalance` requests is left out.
    """

    cites: ClassVar[str] = "SGLang, arXiv:2312.07104, section 3"

    max_imbalance: int = 32
    kind: Literal["prefix_aware"] = "prefix_aware"

    def pick(self, request: Request, targets: Sequence[Target], n_before: int) -> int:
        idlest = min(target.n_requests for target in targets)
        open_to = [
            i
            for i, target in enumerate(targets)
            if target.n_requests <= idlest + self.max_imbalance
        ]
        return min(
            open_to,
            key=lambda i: (-targets[i].cached_tokens(request), targets[i].n_requests, i),
        )
