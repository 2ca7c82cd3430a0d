"""How often a run looked up each table entry: since every lookup is linear, the time of a whole run
by op family and resource, its FLOP and its HBM bytes are sums over these weights.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dse.cost.stages import StageCost, StepGrid
from dse.cost.tables import Array, Priced, weights

if TYPE_CHECKING:
    from dse.cost.step import RankLoad, StepCost


class TallyArrays(NamedTuple):
    """Summed interpolation weights per table entry."""

    token: Array
    group: Array
    head: Array
    draft: Array
    decode: Array
    prefill: Array


@dataclass(frozen=True, slots=True)
class Tally:
    """Weights of the per-rank tables summed over ranks, of `group` once a step."""

    arrays: TallyArrays

    @classmethod
    def empty(cls, grid: StepGrid) -> "Tally":
        """No step yet."""
        seqs, context = len(grid.seqs), len(grid.context)
        return cls(
            TallyArrays(
                token=np.zeros(len(grid.tokens)),
                group=np.zeros(len(grid.group)),
                head=np.zeros(seqs),
                draft=np.zeros(seqs),
                decode=np.zeros((seqs, context)),
                prefill=np.zeros((len(grid.chunk), context)),
            )
        )

    def add(self, cost: "StepCost", load: "RankLoad") -> None:
        """Count the step of one rank."""
        grid, arrays = cost.grid, self.arrays
        _weigh(arrays.token, cost.tokens(load), grid.tokens)
        _weigh(arrays.head, load.n_decode * cost.q_tokens + len(load.chunks), grid.seqs)
        if load.n_decode:
            mean = load.context_sum / load.n_decode
            _weigh(arrays.draft, load.n_decode, grid.seqs)
            _weigh_sheet(arrays.decode, (load.n_decode, mean), (grid.seqs, grid.context))
        for new, cached in load.chunks:
            _weigh_sheet(arrays.prefill, (new, cached), (grid.chunk, grid.context))
        if load.chunks:
            arrays.prefill[0, 0] += 1 - len(load.chunks)

    def add_group(self, cost: "StepCost", m_group: int) -> None:
        """Count the expert group's tokens of a step."""
        _weigh(self.arrays.group, m_group, cost.grid.group)

    def parts(self, cost: "StepCost") -> dict[tuple[str, str], float]:
        """Seconds of the mean rank of the mean stage, by (op family, resource)."""
        found: dict[tuple[str, str], float] = {}
        for stage, table, weight in self._tables(cost):
            for key, seconds in table.parts.items():
                found[key] = found.get(key, 0.0) + stage * float(np.sum(weight * seconds))
        return {key: seconds for key, seconds in found.items() if seconds}

    def flop_seconds(self, cost: "StepCost") -> float:
        """Seconds of arithmetic at peak, of the mean rank: the numerator of MFU."""
        return sum(s * float(np.sum(w * table.flop_s)) for s, table, w in self._tables(cost))

    def hbm_bytes(self, cost: "StepCost") -> float:
        """Bytes of weights and KV that the mean rank read: the numerator of MBU."""
        return sum(s * float(np.sum(w * table.hbm_bytes)) for s, table, w in self._tables(cost))

    def _tables(self, cost: "StepCost") -> list[tuple[float, Priced, Array]]:
        n_stages = sum(stage.count for stage in cost.stages)
        return [
            (stage.count / n_stages / (1 if name == "group" else cost.dp), _of(stage, name), weight)
            for stage in cost.stages
            for name, weight in self.arrays._asdict().items()
        ]


def _of(stage: StageCost, name: str) -> Priced:
    priced: Priced = getattr(stage, name)
    return priced


def _weigh(target: Array, x: float, xs: Array) -> None:
    if x <= 0:
        return
    low, share = weights(x, xs)
    target[low] += 1.0 - share
    target[low + 1] += share


def _weigh_sheet(target: Array, at: tuple[float, float], grid: tuple[Array, Array]) -> None:
    low, share = weights(at[0], grid[0])
    left, part = weights(max(at[1], grid[1][0]), grid[1])
    target[low, left] += (1.0 - share) * (1.0 - part)
    target[low, left + 1] += (1.0 - share) * part
    target[low + 1, left] += share * (1.0 - part)
    target[low + 1, left + 1] += share * part
