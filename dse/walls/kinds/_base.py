"""The contract of a wall: a sound test that compares a demand with a limit."""

from dataclasses import dataclass
from typing import ClassVar

from dse.model.ops import Num
from dse.walls.floors import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Wall:
    """Kills a point whose demand exceeds the limit; never one that the simulator finds feasible.

    `needs` are the columns beside the deployment's facts that both formulas read; a wall whose
    columns a frame lacks does not apply to it. `says` is what a kill means, for people. `varies`
    says whether the verdict depends on the load, else on structure and lengths alone.
    """

    cites: ClassVar[str] = ""
    unit: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    says: ClassVar[str] = ""
    varies: ClassVar[bool] = False
    kind: str

    @property
    def demand_column(self) -> str:
        """Where `judge` puts the demand."""
        return f"{self.kind}_demand_{self.unit}"

    @property
    def limit_column(self) -> str:
        """Where `judge` puts the limit."""
        return f"{self.kind}_limit_{self.unit}"

    def demand(self, c: Columns) -> Num:
        """What a point needs at least, in `unit`."""
        raise NotImplementedError

    def limit(self, c: Columns) -> Num:
        """What there is at most, in `unit`."""
        raise NotImplementedError
