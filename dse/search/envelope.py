"""Piecewise-linear minorants: what a table of step times never undercuts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def rising(values: Array) -> Array:
    """The greatest non-decreasing sequence that stays below `values`."""
    found: Array = np.minimum.accumulate(values[::-1])[::-1]
    return found


@dataclass(frozen=True, slots=True)
class Hull:
    """The greatest convex function below the points (x, y); beyond its ends it is not defined.

    By Jensen `n` steps whose x sum to X take at least `n · at(X / n)`.
    """

    x: Array
    y: Array

    @classmethod
    def below(cls, x: Array, y: Array) -> "Hull":
        """The hull of points with rising x (Andrew's monotone chain)."""
        xs, ys = x.tolist(), y.tolist()
        kept: list[int] = []
        for i, (at, value) in enumerate(zip(xs, ys, strict=True)):
            while len(kept) > 1:
                a, b = kept[-2], kept[-1]
                if not (ys[b] - ys[a]) * (at - xs[a]) >= (value - ys[a]) * (xs[b] - xs[a]):
                    break
                kept.pop()
            kept.append(i)
        return cls(x[kept], y[kept])

    def at(self, x: Array) -> Array:
        """Its values, x taken into the domain."""
        return np.interp(x, self.x, self.y)

    def slope(self, x: Array) -> Array:
        """A subgradient: the slope of the piece that ends at or contains each x."""
        if len(self.x) < 2:
            return np.zeros_like(x)
        piece = np.clip(np.searchsorted(self.x, x, side="left") - 1, 0, len(self.x) - 2)
        found: Array = np.diff(self.y)[piece] / np.diff(self.x)[piece]
        return found

    def share(self, total: Array) -> Array:
        """The least that x summing to `total` cost in any number of parts of at least one."""
        ratios = self.y / self.x
        best = int(ratios.argmin())
        whole = self.at(total)
        return np.where(total <= self.x[best], whole, ratios[best] * total)
