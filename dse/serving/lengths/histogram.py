"""Lengths as counted: bins with weights."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal, Self

from dse.base.errors import UserError
from dse.serving.lengths._base import Lengths, positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(Lengths):
    """Weight `weights[i]` on lengths from `edges[i]` up to, not including, `edges[i + 1]`."""

    edges: tuple[int, ...]
    weights: tuple[float, ...]
    kind: Literal["histogram"] = "histogram"

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.weights) + 1 or not self.weights:
            raise UserError(
                f"{len(self.edges)} edges for {len(self.weights)} weights",
                "give one edge more than weights",
            )
        positive("edges[0]", self.edges[0])
        if any(high <= low for low, high in zip(self.edges, self.edges[1:], strict=False)):
            raise UserError(f"edges {self.edges} do not rise", "sort them")
        if not all(weight >= 0 for weight in self.weights) or not sum(self.weights) > 0:
            raise UserError(f"weights {self.weights}", "give weights of at least 0, one above it")

    def at(self, quantile: float) -> int:
        sums = list(accumulate(self.weights))
        target = quantile * sums[-1]
        i = min(bisect_right(sums, target), len(sums) - 1)
        inside = (target - (sums[i] - self.weights[i])) / self.weights[i]
        low, high = self.edges[i], self.edges[i + 1]
        return min(high - 1, low + int(inside * (high - low)))

    def mean(self) -> float:
        middles = [(a + b - 1) / 2 for a, b in zip(self.edges, self.edges[1:], strict=False)]
        weighted = sum(m * w for m, w in zip(middles, self.weights, strict=True))
        return weighted / sum(self.weights)

    def scaled(self, factor: float) -> Self:
        edges = [max(1, round(edge * factor)) for edge in self.edges]
        for i in range(1, len(edges)):
            edges[i] = max(edges[i], edges[i - 1] + 1)
        return replace(self, edges=tuple(edges))
