"""The contract of an arrival process."""

from dataclasses import dataclass
from random import Random
from typing import ClassVar

from dse.base.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests reach the service.

    `concurrency_limit` is the number in flight of a closed loop; None where arrivals do not wait
    for answers.
    """

    cites: ClassVar[str] = ""

    @property
    def concurrency_limit(self) -> int | None:
        """Requests in flight at most; None for an open loop."""
        return None

    def times(self, n: int, random: Random) -> list[float]:
        """Seconds of the first `n` arrivals, rising."""
        raise NotImplementedError


def rate(value: float) -> None:
    """Refuse a rate that is not a positive number."""
    if not 0 < value < float("inf"):
        raise UserError(f"req_per_s is {value}", "give a positive rate")
