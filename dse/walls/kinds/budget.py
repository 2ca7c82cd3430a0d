"""Budget: a million output tokens cost at least what the throughput ceiling makes them cost."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ops import Num
from dse.walls.floors import Columns, tokens_per_s
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Wall):
    """USD per million output tokens at the throughput ceiling against what the study allows."""

    cites: ClassVar[str] = "the study's price list"
    unit: ClassVar[str] = "usd_per_mtok"
    needs: ClassVar[tuple[str, ...]] = ("usd_per_gpu_hour", "usd_per_mtok_limit")
    says: ClassVar[str] = "tokens cost too much even at the throughput ceiling"
    varies: ClassVar[bool] = True
    kind: Literal["budget"] = "budget"

    def demand(self, c: Columns) -> Num:
        usd_per_s = c["usd_per_gpu_hour"] * c["n_gpus"] / 3600.0
        return usd_per_s / tokens_per_s(c) * 1e6

    def limit(self, c: Columns) -> Num:
        return c["usd_per_mtok_limit"]
