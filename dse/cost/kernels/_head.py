"""The bounded head: from a kernel's limits and features to seconds, never below the roofline.

``t = t_launch + ‖ flop_s/e_c, hbm_s/e_m, soft_s/e_s ‖_p`` with every ``e = sigmoid(logit) < 1``.
The p-norm is never below its largest term: the roofline bounds the time whatever the coefficients
(bounded heads: NeuSight, arXiv:2407.13853; KernelSight-LM, arXiv:2606.28565). The four outputs come
from a tanh network with two small hidden layers, or are constants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dse.cost.kernels._terms import Terms

Array = npt.NDArray[np.floating[Any]]

NORM = 4  # p of the norm: 1 would add the resources, infinity overlap them perfectly
LAUNCH_UNIT_S = 1e-6
MAX_OUTPUT = 7.0  # efficiencies stay within 0.1% and 99.9%, launches within 1 ns and 1.1 ms


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

    def seconds(self, terms: Terms) -> Any:
        """Seconds of the kernels that `terms` describes, in their common shape."""
        if len(self.layers) == 1:
            return combine(terms, np.clip(self.layers[0].astype(float), -MAX_OUTPUT, MAX_OUTPUT))
        shape = np.broadcast_shapes(np.shape(terms.flop_s), *map(np.shape, terms.features))
        outputs = self.outputs(stack(terms.features, shape))
        return combine(terms, outputs.reshape(*shape, 4))

    def outputs(self, features: Array) -> Array:
        """The four outputs of each row of `features` (rows × features), clipped."""
        hidden = features if self.bounds is None else np.clip(features, *self.bounds)
        for weights, bias in zip(self.layers[:-2:2], self.layers[1:-2:2], strict=True):
            hidden = np.tanh(hidden @ weights + bias)
        return np.clip(hidden @ self.layers[-2] + self.layers[-1], -MAX_OUTPUT, MAX_OUTPUT)


def combine(terms: Terms, outputs: Array) -> Any:
    """Seconds from the limits and the four outputs of a head (in the last axis)."""
    needs = (terms.flop_s, terms.hbm_s, terms.soft_s)
    slow = [need * (1.0 + np.exp(-outputs[..., i])) for i, need in enumerate(needs)]
    largest = np.maximum(np.maximum(slow[0], slow[1]), np.maximum(slow[2], 1e-15))
    norm = sum((each / largest) ** NORM for each in slow) ** (1.0 / NORM)
    return LAUNCH_UNIT_S * np.exp(outputs[..., 3]) + largest * norm


def stack(features: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Features broadcast to `shape` and flattened: a float32 matrix, one row a kernel."""
    matrix = np.empty((int(np.prod(shape)), len(features)), dtype=np.float32)
    for column, feature in enumerate(features):
        matrix[:, column] = np.broadcast_to(feature, shape).ravel()
    return matrix
