"""The bounded head: from a kernel's limits and features to seconds, never below the roofline.

``t = t_launch + ‖ flop_s/e_c, hbm_s/e_m, soft_s/e_s ‖_p`` with every ``e = sigmoid(logit) < 1``.
The p-norm is never below its largest term: the roofline bounds the time whatever the coefficients
(bounded heads: NeuSight, arXiv:2407.13853; KernelSight-LM, arXiv:2606.28565). The four outputs come
from a tanh network with two small hidden layers, or are constants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
    measured: beyond it the efficiencies stay what they are at its edge.
    """

    layers: tuple[Array, ...]
    bounds: Array | None = None

    @classmethod
    def constant(
        cls, *, compute: float, memory: float, launch_s: float, soft: float = 0.7
    ) -> "Head":
        """A head without features: fixed efficiencies (0-1) and launch time (s)."""
        logits = [np.log(e / (1.0 - e)) for e in (compute, memory, soft)]
        bias = [*logits, np.log(launch_s / LAUNCH_UNIT_S)]
        return cls(layers=(np.asarray(bias, dtype=np.float32),))

    def shares(self, terms: Terms, transfer: Transfer | None = None) -> Shares:
        """What each resource and the launch take, in the common shape of `terms`; `transfer` where
        the head was fitted on another GPU.
        """
        if len(self.layers) == 1:
            fixed = np.clip(self.layers[0].astype(float), -MAX_OUTPUT, MAX_OUTPUT)
            return slowed(terms, fixed, transfer)
        shape = np.broadcast_shapes(np.shape(terms.flop_s), *map(np.shape, terms.features))
        outputs = self.outputs(stack(terms.features, shape))
        return slowed(terms, outputs.reshape(*shape, 4), transfer)

    def seconds(self, terms: Terms) -> Any:
        """Seconds of the kernels that `terms` describes, in their common shape."""
        return total(self.shares(terms))

    def outputs(self, features: Array) -> Array:
        """The four outputs of each row of `features` (rows × features), clipped."""
        hidden = features if self.bounds is None else np.clip(features, *self.bounds)
        for weights, bias in zip(self.layers[:-2:2], self.layers[1:-2:2], strict=True):
            hidden = np.tanh(hidden @ weights + bias)
        return np.clip(hidden @ self.layers[-2] + self.layers[-1], -MAX_OUTPUT, MAX_OUTPUT)


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
    norm = sum((each / largest) ** NORM for each in parts[:3]) ** (1.0 / NORM)
    return parts.launch + largest * norm


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


def stack(features: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Features broadcast to `shape` and flattened: a float32 matrix, one row a kernel."""
    matrix = np.empty((int(np.prod(shape)), len(features)), dtype=np.float32)
    for column, feature in enumerate(features):
        matrix[:, column] = np.broadcast_to(feature, shape).ravel()
    return matrix
