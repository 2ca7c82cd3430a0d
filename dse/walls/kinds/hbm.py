"""HBM: weights and what the engine takes must fit beside nothing else."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ops import Num
from dse.walls.floors import Columns
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class HBM(Wall):
    """Weights and overheads of the fullest rank against the HBM that the engine may use."""

    cites: ClassVar[str] = "arXiv:2607.05876, section 3.5"
    unit: ClassVar[str] = "bytes"
    says: ClassVar[str] = "weights and overheads do not fit a GPU"
    kind: Literal["hbm"] = "hbm"

    def demand(self, c: Columns) -> Num:
        return c["hbm_needed_bytes"]

    def limit(self, c: Columns) -> Num:
        return c["hbm_limit_bytes"]
