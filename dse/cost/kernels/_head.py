"""The bounded head: from a kernel's limits and features to seconds, never below the roofline.

``t = t_launch + ‖ flop_s/e_c, hbm_s/e_m, soft_s/e_s ‖_p`` with every ``e = sigmoid(logit) < 1``.
The p-norm is never below its largest term: the roofline bounds the time whatever the coefficients
(bounded heads: NeuSight, arXiv:2407.13853; KernelSight-LM, arXiv:2606.28565). The four outputs come
from a tanh network with two small hidden layers, or are constants. Several networks of one kernel,
fitted from different seeds, price it by the geometric mean of their times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dse.cost.kernels._terms import Terms
from dse.cost.kernels._transfer import Transfer

Array = npt.NDArray[np.floating[Any]]

NORM = 4  # p of the norm: 1 would add the resources, infinity overlap them perfectly
LAUNCH_UNIT_S = 1e-6
NOTHING_S = 1e-15
MAX_OUTPUT = 7.0  # efficiencies stay within 0.1% and 99.9%, launches within 1 ns and 1.1 ms
BLOCK_ROWS = 2048  # rows whose hidden layers stay in the cache of a core


class Shares(NamedTuple):
    """Seconds that arithmetic, HBM and the soft resource take at their efficiencies, and launch."""

    flop: Any
    hbm: Any
    soft: Any
    launch: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Coefficients of one implementation of one kernel family on one GPU.

    `layers` is weights (inputs × outputs), bias, weights, bias, …; the last bias has four entries:
    the logits of `e_c`, `e_m` and `e_s`, and the logarithm of the launch time in µs. With the last
    bias alone the efficiencies are constants. `bounds` (2 × features) is the range that was
    measured: beyond it the efficiencies stay what they are at its edge. `others` are the layers of
    further networks of the same sizes and bounds.
    """

    layers: tuple[Array, ...]
    bounds: Array | None = None
    others: tuple[tuple[Array, ...], ...] = ()

    @classmethod
    def constant(
        cls, *, compute: float, memory: float, launch_s: float, soft: float = 0.7
    ) -> "Head":
        """A head without features: fixed efficiencies (0-1) and launch time (s)."""
        logits = [np.log(e / (1.0 - e)) for e in (compute, memory, soft)]
        bias = [*logits, np.log(launch_s / LAUNCH_UNIT_S)]
        return cls(layers=(np.asarray(bias, dtype=np.float32),))

    @property
    def alone(self) -> "Head":
        """The first network by itself: further ones average out noise, a fraction of what carrying
        an efficiency to another GPU errs by, and cost as much again.
        """
        return replace(self, others=()) if self.others else self

    def shares(self, terms: Terms, transfer: Transfer | None = None) -> Shares:
        """What each resource and the launch take, in the common shape of `terms`; `transfer` where
        the head was fitted on another GPU.
        """
        if len(self.layers) == 1:
            fixed = np.clip(self.layers[0].astype(float), -MAX_OUTPUT, MAX_OUTPUT)
            return slowed(terms, fixed, transfer)
        shape = np.broadcast_shapes(np.shape(terms.flop_s), *map(np.shape, terms.features))
        each = self.outputs(stack(terms.features, shape))
        return average([slowed(terms, found.reshape(*shape, 4), transfer) for found in each])

    def seconds(self, terms: Terms) -> Any:
        """Seconds of the kernels that `terms` describes, in their common shape."""
        return total(self.shares(terms))

    def outputs(self, features: Array) -> list[Array]:
        """The four outputs of each row of `features` (rows × features), clipped, by network."""
        networks = (self.layers, *self.others)
        found = [np.empty((len(features), 4), dtype=np.float32) for _ in networks]
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            some = features[rows] if self.bounds is None else np.clip(features[rows], *self.bounds)
            for layers, out in zip(networks, found, strict=True):
                _forward(layers, some, out[rows])
        return found


def _forward(layers: tuple[Array, ...], hidden: Array, out: Array) -> None:
    """What a network makes of the rows of `hidden`, clipped, into `out`."""
    for weights, bias in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        hidden = hidden @ weights
        hidden += bias
        np.tanh(hidden, out=hidden)
    np.clip(hidden @ layers[-2] + layers[-1], -MAX_OUTPUT, MAX_OUTPUT, out=out)


def slowed(terms: Terms, outputs: Array, transfer: Transfer | None = None) -> Shares:
    """What the four outputs of a head (in the last axis) make of the limits."""
    inverse = [1.0 + np.exp(-outputs[..., i]) for i in range(3)]
    if transfer is not None:
        beyond = inverse[0] - transfer.power_there
        scaled = np.where(beyond > 0.0, beyond * transfer.issue, beyond)
        inverse[0] = np.maximum(transfer.power + scaled, 1.0)
        inverse[1] = np.maximum(inverse[1] * transfer.memory, 1.0)
    return Shares(
        flop=terms.flop_s * inverse[0],
        hbm=terms.hbm_s * inverse[1],
        soft=terms.soft_s * inverse[2],
        launch=LAUNCH_UNIT_S * np.exp(outputs[..., 3]),
    )


def total(parts: Shares) -> Any:
    """Seconds of a kernel: its launch and the p-norm of its resources."""
    largest = np.maximum(np.maximum(parts.flop, parts.hbm), np.maximum(parts.soft, NOTHING_S))
    # Squares and square roots: `pow` would take longer than a network.
    squares = [np.square(each / largest) for each in parts[:3]]
    return parts.launch + largest * np.sqrt(np.sqrt(sum(each * each for each in squares)))


def blend(opinions: Sequence[Shares], weights: Sequence[Sequence[float]]) -> Shares:
    """Geometric mean of each share; `weights` has a row for each opinion and a column for each
    share, and its columns sum to one. What every opinion respects the mean respects.
    """
    if len(opinions) == 1:
        return opinions[0]
    means = []
    for column in range(4):
        logs = [
            row[column] * np.log(np.maximum(each[column], NOTHING_S))
            for each, row in zip(opinions, weights, strict=True)
        ]
        means.append(np.exp(sum(logs)))
    return Shares(*means)


def average(found: Sequence[Shares]) -> Shares:
    """Shares whose time is the geometric mean of the times of `found`: the geometric mean of each
    share, times what the norm lost by it. A norm is convex in the logarithms of its terms, so that
    factor is at least one, and shares stay above their limits.
    """
    if len(found) == 1:
        return found[0]
    mean = Shares(*(_geometric(each) for each in zip(*found, strict=True)))
    lost = _geometric([total(one) for one in found]) / total(mean)
    return Shares(*(share * lost for share in mean))


def _geometric(values: Sequence[Any]) -> Any:
    """Their geometric mean; of two by a square root: logarithms take longer than a network."""
    product = reduce(np.multiply, values)
    return np.sqrt(product) if len(values) == 2 else product ** (1.0 / len(values))


def stack(features: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Features broadcast to `shape` and flattened: a float32 matrix, one row a kernel."""
    matrix = np.empty((int(np.prod(shape)), len(features)), dtype=np.float32)
    for column, feature in enumerate(features):
        matrix[:, column] = np.broadcast_to(feature, shape).ravel()
    return matrix
