"""The contract of a scheduler."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """Decides over waiting and running requests; holds no state of its own."""

    cites: ClassVar[str] = ""
