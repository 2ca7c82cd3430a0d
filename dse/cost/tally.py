"""How often a run looked up each table, as whole numbers.

Every lookup is linear within its cell, so counts and sums of the arguments per cell give the time
of a whole run by op family and resource, its FLOP and its HBM bytes. Whole numbers add up to the
same in any order.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.cost.stages import StageCost, StepGrid
from dse.cost.tables import Array, Priced, cell

if TYPE_CHECKING:
    from dse.cost.step import RankLoad, StepCost

Ints = NDArray[np.int64]
# The one-dimensional tables, in order.
TOKEN, GROUP, HEAD, DRAFT = range(4)
LINES = ("token", "group", "head", "draft")


class TallyArrays(NamedTuple):
    """Lookups and sums of arguments: `line_n[i, cell]`, `line_x[i, cell]` of the one-dimensional
    tables; `decode_n[n, cell]`, `decode_c[n, cell]` (Σ context) by number of sequences;
    `prefill[cell, cell]` = count, Σ new, Σ cached, Σ new · cached.
    """

    line_n: Ints
    line_x: Ints
    decode_n: Ints
    decode_c: Ints
    prefill: Ints


@dataclass(frozen=True, slots=True)
class Tally:
    """Lookups of the per-rank tables of all ranks, and of `group` once a step."""

    arrays: TallyArrays

    @classmethod
    def empty(cls, grid: StepGrid) -> "Tally":
        """No step yet."""

        def zeros(*shape: int) -> Ints:
            return np.zeros(shape, dtype=np.int64)

        longest = max(len(xs) for xs in _grids(grid))
        seqs, context = int(grid.seqs[-1]) + 1, len(grid.context)
        return cls(
            TallyArrays(
                line_n=zeros(4, longest),
                line_x=zeros(4, longest),
                decode_n=zeros(seqs, context),
                decode_c=zeros(seqs, context),
                prefill=zeros(len(grid.chunk), context, 4),
            )
        )

    def add(self, cost: "StepCost", load: "RankLoad") -> None:
        """Count the step of one rank."""
        grid, arrays, n = cost.grid, self.arrays, load.n_decode
        self._add_line(TOKEN, cost.tokens(load), grid.tokens)
        self._add_line(HEAD, n * cost.q_tokens + len(load.chunks), grid.seqs)
        if n:
            self._add_line(DRAFT, n, grid.seqs)
            at = cell(load.context_sum / n, grid.context)
            arrays.decode_n[n, at] += 1
            arrays.decode_c[n, at] += int(load.context_sum)
        for new, cached in load.chunks:
            self._add_chunk(new, cached, 1, grid)
        if load.chunks:
            # All chunks of a step share what the least one takes.
            self._add_chunk(1, 1, 1 - len(load.chunks), grid)

    def add_group(self, cost: "StepCost", m_group: int) -> None:
        """Count the expert group's tokens of a step."""
        self._add_line(GROUP, m_group, cost.grid.group)

    def _add_line(self, line: int, x: int, xs: Array) -> None:
        if x > 0:
            at = cell(x, xs)
            self.arrays.line_n[line, at] += 1
            self.arrays.line_x[line, at] += x

    def _add_chunk(self, new: int, cached: int, times: int, grid: StepGrid) -> None:
        cached = max(cached, 1)
        entry = self.arrays.prefill[cell(new, grid.chunk), cell(cached, grid.context)]
        entry += times * np.array([1, new, cached, new * cached], dtype=np.int64)

    def parts(self, cost: "StepCost") -> dict[tuple[str, str], float]:
        """Seconds of the mean rank of the mean stage, by (op family, resource)."""
        found: dict[tuple[str, str], float] = {}
        for share, table, weight in self._tables(cost):
            for key, seconds in table.parts.items():
                found[key] = found.get(key, 0.0) + share * float(np.sum(weight * seconds))
        return _settled(found)

    def flop_seconds(self, cost: "StepCost") -> float:
        """Seconds of arithmetic at peak, of the mean rank: the numerator of MFU."""
        return sum(s * float(np.sum(w * table.flop_s)) for s, table, w in self._tables(cost))

    def hbm_bytes(self, cost: "StepCost") -> float:
        """Bytes of weights and KV that the mean rank read: the numerator of MBU."""
        return sum(s * float(np.sum(w * table.hbm_bytes)) for s, table, w in self._tables(cost))

    def _tables(self, cost: "StepCost") -> list[tuple[float, Priced, Array]]:
        n_stages = sum(stage.count for stage in cost.stages)
        weights = self._weights(cost.grid)
        return [
            (stage.count / n_stages / (1 if name == "group" else cost.dp), _of(stage, name), weight)
            for stage in cost.stages
            for name, weight in weights.items()
        ]

    def _weights(self, grid: StepGrid) -> dict[str, Array]:
        """Summed interpolation weights of every table entry."""
        found = {
            name: _line_weights(self.arrays.line_n[i], self.arrays.line_x[i], xs)
            for i, (name, xs) in enumerate(zip(LINES, _grids(grid), strict=True))
        }
        found["decode"] = self._decode_weights(grid)
        found["prefill"] = self._prefill_weights(grid)
        return found

    def _decode_weights(self, grid: StepGrid) -> Array:
        found = np.zeros((len(grid.seqs), len(grid.context)))
        for n in np.flatnonzero(self.arrays.decode_n.any(axis=1)).tolist():
            sums = self.arrays.decode_c[n] / n
            along = _line_weights(self.arrays.decode_n[n], sums, grid.context)
            row = cell(n, grid.seqs)
            share = (n - grid.seqs[row]) / (grid.seqs[row + 1] - grid.seqs[row])
            found[row] += (1.0 - share) * along
            found[row + 1] += share * along
        return found

    def _prefill_weights(self, grid: StepGrid) -> Array:
        found = np.zeros((len(grid.chunk), len(grid.context)))
        xs, ys = grid.chunk, grid.context
        for i, j in np.argwhere(self.arrays.prefill.any(axis=2)).tolist():
            n, new, cached, product = self.arrays.prefill[i, j].tolist()
            wide, high = xs[i + 1] - xs[i], ys[j + 1] - ys[j]
            right, up = (new - n * xs[i]) / wide, (cached - n * ys[j]) / high
            both = (product - ys[j] * new - xs[i] * cached + n * xs[i] * ys[j]) / (wide * high)
            found[i, j] += n - right - up + both
            found[i + 1, j] += right - both
            found[i, j + 1] += up - both
            found[i + 1, j + 1] += both
        return found


def _settled(parts: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The same without negative parts: what chunks share in a step may be charged to another
    resource than they are, and goes back to where their family spends most.
    """
    for family, resource in [key for key, seconds in parts.items() if seconds < 0]:
        owed = parts.pop((family, resource))
        most = max((k for k in parts if k[0] == family), key=lambda k: parts[k])
        parts[most] += owed
    return {key: seconds for key, seconds in parts.items() if seconds}


def _grids(grid: StepGrid) -> tuple[Array, Array, Array, Array]:
    return grid.tokens, grid.group, grid.seqs, grid.seqs


def _line_weights(counts: Any, sums: Any, xs: Array) -> Array:
    cells = len(xs) - 1
    upper = (sums[:cells] - counts[:cells] * xs[:-1]) / np.diff(xs)
    found = np.zeros(len(xs))
    found[:-1] += counts[:cells] - upper
    found[1:] += upper
    return found


def _of(stage: StageCost, name: str) -> Priced:
    priced: Priced = getattr(stage, name)
    return priced
