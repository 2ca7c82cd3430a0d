"""TPOT floor: a token takes its share of a step that decodes the shortest request alone."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ops import Num
from dse.walls.floors import Columns, single_step_s
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class TPOTFloor(Wall):
    """`t_opt` at batch 1, where the fewest experts are read, ÷ the most tokens a step may yield.

    Every request would miss the bound, so it holds whatever share must meet it. TPOT is undefined
    for answers of one token.
    """

    cites: ClassVar[str] = "arXiv:2607.05876, section 3.1"
    unit: ClassVar[str] = "s"
    needs: ClassVar[tuple[str, ...]] = ("slo_tpot_s",)
    says: ClassVar[str] = "even one request alone decodes too slowly"
    kind: Literal["tpot_floor"] = "tpot_floor"

    def demand(self, c: Columns) -> Num:
        is_defined = c["osl_low_tokens"] > 1.5
        return single_step_s(c) / c["tokens_per_step_max"] * is_defined

    def limit(self, c: Columns) -> Num:
        return c["slo_tpot_s"]
