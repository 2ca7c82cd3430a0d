"""What one step computes."""

from dataclasses import dataclass, field
from typing import NamedTuple

from dse.serving.request import Request


class Chunk(NamedTuple):
    """`new_tokens` of `request` on `context_tokens` already in the cache; `is_decode` when they are
    its latest token and the drafts after it.
    """

    request: Request
    new_tokens: int
    context_tokens: int
    is_decode: bool


@dataclass(slots=True)
class Batch:
    """The chunks of one rank in one step, and the requests that lost their place for it."""

    chunks: list[Chunk] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
