"""Arrivals and lengths as recorded."""

from dataclasses import dataclass, field
from random import Random
from typing import Literal

from dse.base.errors import UserError
from dse.serving.arrivals._base import Arrivals


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One recorded request. `priority` ranks it (lower first), `session` groups turns that share a
    growing prefix ('' for none), and `hash_ids` name the content of its leading blocks of
    `hash_tokens` tokens each (Mooncake).
    """

    arrival_s: float
    isl_tokens: int
    osl_tokens: int
    priority: int = 0
    session: str = ""
    hash_ids: tuple[int, ...] = ()
    hash_tokens: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Arrivals):
    """The requests of `file`, which give both arrivals and lengths.

    `rows` are filled by the trace reader; `content_id`, their digest, is what identifies the trace.
    """

    file: str = field(compare=False)
    content_id: str = ""
    rows: tuple[TraceRequest, ...] = field(default=(), compare=False, repr=False)
    kind: Literal["trace"] = "trace"

    def times(self, n: int, random: Random) -> list[float]:
        if not self.rows:
            raise UserError(f"the trace {self.file} was not read", "read it with `read_trace`")
        return [row.arrival_s for row in self.rows[:n]]
