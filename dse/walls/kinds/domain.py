"""Domain: the ranks of one replica must be joined by some fabric."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ops import Num
from dse.walls.floors import Columns
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(Wall):
    """GPUs of a replica against the largest cluster that the fabric joins.

    Leaving the scale-up domain is slow, not impossible, and no reason to kill.
    """

    cites: ClassVar[str] = "the fabric's data sheet"
    unit: ClassVar[str] = "gpus"
    says: ClassVar[str] = "the fabric does not join that many GPUs"
    kind: Literal["domain"] = "domain"

    def demand(self, c: Columns) -> Num:
        return c["replica_gpus"]

    def limit(self, c: Columns) -> Num:
        return c["fabric_gpus"]
