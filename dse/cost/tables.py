"""Lookup tables of op times: the grids, the pricing of a list of ops on a grid, and interpolation.

Everything between grid points is linear; attention interpolates in context itself, not in its
logarithm. The interpolation functions take lists or arrays, hold no state and call nothing, so that
the simulator can compile them as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dse.cost.kernels._base import KernelModel
from dse.cost.lower import Counted
from dse.cost.memo import Memo, shape_key
from dse.cost.work import work
from dse.hardware.gpu import GPU
from dse.model.ops import Collective, Num, Op

Array = NDArray[np.float64]

# What a launch can hide behind the kernel before it in a CUDA graph: at most its own length.
LAUNCH_S = 2e-6


class CollectiveModel(Protocol):
    """Prices collectives on one fabric; array fields give arrays of seconds."""

    def seconds(self, op: Collective) -> Num:
        """Seconds of one run of `op`."""
        ...


# Ops whose prices are kept: the layouts of one pool share most of theirs.
_KEPT_OPS = 4096


class OpPrice(NamedTuple):
    """One run of an op: seconds by the resource that bounds them (flop, hbm or net), seconds of its
    arithmetic at peak, and bytes of weights and KV.
    """

    seconds: dict[str, Num]
    flop_s: Num = 0.0
    hbm_bytes: Num = 0.0


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What prices ops: kernels of one GPU, collectives of one fabric, and the share of launches
    that overlap the kernel before. An op is priced once.
    """

    gpu: GPU
    kernels: KernelModel
    collectives: CollectiveModel
    launch_overlap: float = 0.0
    _known: Memo[OpPrice] = field(
        default_factory=lambda: Memo(_KEPT_OPS), init=False, compare=False, repr=False
    )

    @cached_property
    def ids(self) -> tuple[str, str]:
        """Digests of the coefficients of kernels and collectives."""
        return self.kernels.physics_id, getattr(self.collectives, "physics_id", "")

    def of(self, op: Op) -> OpPrice:
        """The price of one run of `op` on the grid that its array fields span."""
        return self._known.of((), shape_key(op), lambda: self._priced(op))

    def _priced(self, op: Op) -> OpPrice:
        if isinstance(op, Collective):
            return OpPrice({"net": self.collectives.seconds(op)})
        seconds = self.kernels.seconds(op)
        if self.launch_overlap:
            floor = self.kernels.roofline_seconds(op)
            hidden = np.minimum(np.maximum(seconds - floor, 0.0), LAUNCH_S)
            seconds = seconds - self.launch_overlap * hidden
        needs = work(op)
        flop_s, hbm_s = needs.flop_seconds(self.gpu), needs.hbm_seconds(self.gpu)
        on_compute = np.asarray(flop_s) > np.asarray(hbm_s)
        bound = {"flop": (seconds, on_compute), "hbm": (seconds, ~on_compute)}
        found = {name: whole * there for name, (whole, there) in bound.items() if there.any()}
        return OpPrice(found, flop_s, needs.hbm_bytes)


@dataclass(slots=True)
class Priced:
    """Seconds of a list of ops on a grid of `shape`.

    `parts` splits them by (op family, resource that bounds it: hbm, flop or net); `flop_s` is their
    arithmetic at peak and `hbm_bytes` their weights and KV, for MFU and MBU.
    """

    shape: tuple[int, ...]
    parts: dict[tuple[str, str], Array] = field(default_factory=dict)
    flop_s: Array = field(init=False)
    hbm_bytes: Array = field(init=False)

    def __post_init__(self) -> None:
        self.flop_s = np.zeros(self.shape)
        self.hbm_bytes = np.zeros(self.shape)

    @property
    def seconds(self) -> Array:
        """Seconds of all parts together."""
        return sum(self.parts.values(), np.zeros(self.shape))

    def add(self, key: tuple[str, str], seconds: Num) -> None:
        """Add seconds to the part `key`."""
        self.parts[key] = self.parts.get(key, np.zeros(self.shape)) + seconds


def price(ops: Iterable[Counted], prices: Prices, shape: tuple[int, ...]) -> Priced:
    """Price each op of one stage on the grid that its array fields span."""
    found = Priced(shape)
    for op, count in ((counted.op, counted.count) for counted in ops):
        each = prices.of(op)
        family = op.kind if isinstance(op, Collective) else op.family
        for resource, seconds in each.seconds.items():
            found.add((family, resource), count * seconds)
        found.flop_s += count * each.flop_s
        found.hbm_bytes += count * each.hbm_bytes
    return found


def octaves(top: float, *, start: int = 1, halves_from: float = 2) -> Array:
    """Whole numbers from `start` to at least `top`: powers of two, and from `halves_from` on also
    one and a half times each. At least two points.
    """
    points, value = [], start
    while True:
        points.append(value)
        if value >= top and len(points) > 1:
            return np.array(points, dtype=float)
        if value >= halves_from and value * 3 // 2 < top * 1.4:
            points.append(value * 3 // 2)
        value *= 2


def curve(x: float, xs: Any, ys: Any) -> float:
    """Linear interpolation at `x` (0 at or below 0; outside the grid its end segments go on)."""
    if x <= 0:
        return 0.0
    low, high = 0, len(xs) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if xs[middle] <= x:
            low = middle
        else:
            high = middle
    slope = (ys[low + 1] - ys[low]) / (xs[low + 1] - xs[low])
    return float(ys[low] + (x - xs[low]) * slope)


def sheet(x: float, y: float, xs: Any, ys: Any, zs: Any) -> float:
    """Bilinear interpolation of `zs[i][j]` at (`x`, `y`); `y` is not taken below the grid."""
    low, high = 0, len(xs) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if xs[middle] <= x:
            low = middle
        else:
            high = middle
    left, right = 0, len(ys) - 1
    while right - left > 1:
        middle = (left + right) // 2
        if ys[middle] <= y:
            left = middle
        else:
            right = middle
    share = (x - xs[low]) / (xs[low + 1] - xs[low])
    at = zs[low][left] + share * (zs[low + 1][left] - zs[low][left])
    after = zs[low][left + 1] + share * (zs[low + 1][left + 1] - zs[low][left + 1])
    y = max(y, ys[left]) if left == 0 else y
    return float(at + (y - ys[left]) * ((after - at) / (ys[left + 1] - ys[left])))


def cell(x: float, xs: Any) -> int:
    """The cell of the grid that `curve` reads `x` in, outside it the first or the last."""
    low, high = 0, len(xs) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if xs[middle] <= x:
            low = middle
        else:
            high = middle
    return low
