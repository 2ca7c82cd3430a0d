"""The contract of a router."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from dse.serving.request import Request


class Target(Protocol):
    """What a router sees of one rank."""

    @property
    def n_requests(self) -> int:
        """Requests that wait or run there."""
        ...

    def cached_tokens(self, request: Request) -> int:
        """Leading tokens of `request` that its KV pool holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Picks the rank for each request, once, on arrival. `is_stateless` routers look at nothing but
    the number of requests before, so equal replicas behind one can be simulated once.
    """

    cites: ClassVar[str] = ""
    is_stateless: ClassVar[bool] = False

    def pick(self, request: Request, targets: Sequence[Target], n_before: int) -> int:
        """Index of the target that takes `request`, the `n_before`-th to arrive."""
        raise NotImplementedError
