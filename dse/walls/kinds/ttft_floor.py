"""TTFT floor: the shortest prompt alone, chunk by chunk, without any queue."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ops import Num
from dse.walls.floors import Columns, prompt_s
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class TTFTFloor(Wall):
    """The sum over the chunks of the shortest prompt, shared prefix cached, per resource."""

    cites: ClassVar[str] = "arXiv:2607.05876, section 3.1"
    unit: ClassVar[str] = "s"
    needs: ClassVar[tuple[str, ...]] = ("slo_ttft_s",)
    says: ClassVar[str] = "even one prompt alone takes too long"
    kind: Literal["ttft_floor"] = "ttft_floor"

    def demand(self, c: Columns) -> Num:
        return prompt_s(c)

    def limit(self, c: Columns) -> Num:
        return c["slo_ttft_s"]
