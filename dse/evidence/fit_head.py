"""Fits a `Head` to measured kernels: Adam on the Huber loss of log(predicted ÷ measured).

Only numpy: the network is small enough that its gradient fits on a screen. The loss is robust, so
single outliers of a sweep do not bend the curve. Inputs are standardised while fitting and the
standardisation is folded into the first layer; a feature that never varied gets weight zero, so it
cannot extrapolate.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dse.cost.kernels._head import LAUNCH_UNIT_S, MAX_OUTPUT, NORM, Head

Array = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Measured kernels of one slice: `needs` (rows × 3) are flop, HBM and soft seconds at peak,
    `features` rows × features, `seconds` what was measured, `group` the shape group of each row and
    `weight` its weight in a fit.
    """

    needs: Array
    features: Array
    seconds: Array
    group: npt.NDArray[np.int64]

    def take(self, index: Any) -> "Samples":
        """The rows of `index` (mask or positions)."""
        return Samples(
            needs=self.needs[index],
            features=self.features[index],
            seconds=self.seconds[index],
            group=self.group[index],
        )

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def roofline_s(self) -> Array:
        """Roofline seconds of each row."""
        limit: Array = np.maximum(self.needs[:, 0], self.needs[:, 1])
        return limit


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """How a head is fitted: `networks` of it from as many seeds; each step shrinks the weights by
    the share `decay` of its rate.
    """

    hidden: tuple[int, int] = (32, 32)
    steps: int = 6000
    batch_rows: int = 256
    learning_rate: float = 1.5e-2
    huber: float = 0.04
    decay: float = 0.0
    networks: int = 1
    seed: int = 0
    start: tuple[float, float, float, float] = (0.8, 0.8, 0.8, 1.2)


def fit(samples: Samples, settings: FitSettings = FitSettings()) -> Head:
    """A head fitted to `samples`; deterministic for a seed."""
    seeds = range(settings.seed, settings.seed + settings.networks)
    first, *others = (_network(samples, replace(settings, seed=seed)) for seed in seeds)
    bounds = np.stack([samples.features.min(axis=0), samples.features.max(axis=0)])
    return Head(layers=first, bounds=bounds.astype(np.float32), others=tuple(others))


def _network(samples: Samples, settings: FitSettings) -> tuple[Array, ...]:
    """Weights and biases of one network."""
    rng = np.random.default_rng(settings.seed)
    mean, scale = _standard(samples.features)
    inputs = ((samples.features - mean) * scale).astype(np.float32)
    needs = (samples.needs / LAUNCH_UNIT_S).astype(np.float32)
    target = np.log(samples.seconds / LAUNCH_UNIT_S).astype(np.float32)
    optimiser = _Adam(_start(inputs.shape[1], settings, rng), settings)
    layers = optimiser.layers
    position = len(target)
    for _ in range(settings.steps):
        if position + settings.batch_rows > len(target):
            # Shuffled whole, so that a batch is a view and not a gather.
            order, position = rng.permutation(len(target)), 0
            inputs, needs, target = inputs[order], needs[order], target[order]
        rows = slice(position, position + settings.batch_rows)
        position += settings.batch_rows
        optimiser.step(_gradient(layers, inputs[rows], needs[rows], target[rows], settings.huber))
    first = layers[0] * scale[:, None]
    folded = [first, layers[1] - mean @ first, *layers[2:]]
    return tuple(np.asarray(layer, dtype=np.float32) for layer in folded)


def predict(head: Head, samples: Samples) -> Array:
    """Seconds that `head` gives the rows of `samples`."""
    found = head.outputs(samples.features.astype(np.float32))
    logs = [np.log(mix(samples.needs, each.astype(float))) for each in found]
    seconds: Array = np.exp(sum(logs) / len(logs))
    return seconds


def mix(needs: Array, outputs: Array) -> Array:
    """`dse.cost.kernels._head.total` on matrices."""
    slow = needs * (1.0 + np.exp(-outputs[:, :3]))
    seconds: Array = LAUNCH_UNIT_S * np.exp(outputs[:, 3]) + np.linalg.norm(slow, NORM, axis=1)
    return seconds


def _standard(features: Array) -> tuple[Array, Array]:
    mean = features.mean(axis=0)
    spread = features.std(axis=0)
    varies = spread > 1e-4 * (1.0 + np.abs(mean))
    return mean, np.where(varies, 1.0 / np.maximum(spread, 1e-9), 0.0)


def _start(n_inputs: int, settings: FitSettings, rng: np.random.Generator) -> list[Array]:
    sizes = (n_inputs, *settings.hidden, 4)
    layers: list[Array] = []
    for index, (rows, columns) in enumerate(pairwise(sizes)):
        gain = 0.1 if index == len(sizes) - 2 else 1.0
        layers.append((rng.normal(size=(rows, columns)) * gain / np.sqrt(rows)).astype(np.float32))
        layers.append(np.zeros(columns, dtype=np.float32))
    layers[-1] = np.asarray(settings.start, dtype=np.float32)
    return layers


def _gradient(
    layers: list[Array], inputs: Array, needs: Array, target: Array, huber: float
) -> list[Array]:
    """Gradient of the mean Huber loss in log time with respect to every layer.

    Fourth powers and roots are products and square roots: `pow` would take half the time of a step.
    """
    w1, b1, w2, b2, w3, b3 = layers
    h1 = np.tanh(inputs @ w1 + b1)
    h2 = np.tanh(h1 @ w2 + b2)
    out = np.clip(h2 @ w3 + b3, -MAX_OUTPUT, MAX_OUTPUT)
    inverse = np.exp(-out[:, :3])
    slow = needs * (1.0 + inverse)
    launch = np.exp(out[:, 3])
    square = slow * slow
    norm = np.maximum(np.sqrt(np.sqrt((square * square).sum(axis=1))), 1e-9)
    total = launch + norm
    pull = np.clip((np.log(total) - target) / huber, -1.0, 1.0) / (len(target) * total)
    share = slow / norm[:, None]
    d_out = np.empty_like(out)
    d_out[:, :3] = -pull[:, None] * (share * share * share) * needs * inverse
    d_out[:, 3] = pull * launch
    d2 = (d_out @ w3.T) * (1.0 - h2 * h2)
    d1 = (d2 @ w2.T) * (1.0 - h1 * h1)
    return [inputs.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d_out, d_out.sum(0)]


class _Adam:
    """Adam (arXiv:1412.6980) with a cosine schedule. `layers` are views of one vector, which a step
    updates as a whole.
    """

    def __init__(self, layers: list[Array], settings: FitSettings) -> None:
        self._flat = np.concatenate([layer.ravel() for layer in layers])
        ends = np.cumsum([layer.size for layer in layers])[:-1]
        parts = np.split(self._flat, ends)
        self.layers = [p.reshape(layer.shape) for p, layer in zip(parts, layers, strict=True)]
        self._settings = settings
        self._mean = np.zeros_like(self._flat)
        self._square = np.zeros_like(self._flat)
        kept = [np.full(layer.size, settings.decay * (layer.ndim > 1)) for layer in layers]
        self._decay = np.concatenate(kept).astype(np.float32)
        self._step = 0

    def step(self, gradients: list[Array]) -> None:
        """Apply one update."""
        self._step += 1
        progress = self._step / self._settings.steps
        rate = self._settings.learning_rate * 0.5 * (1.0 + float(np.cos(np.pi * progress))) + 1e-6
        gradient = np.concatenate([part.ravel() for part in gradients])
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.01 * (gradient * gradient - self._square)
        spread = np.sqrt(self._square * (1.0 / (1.0 - 0.99**self._step))) + 1e-8
        self._flat -= (rate / (1.0 - 0.9**self._step)) * self._mean / spread
        if self._settings.decay:
            self._flat -= rate * self._decay * self._flat  # of weights, not of biases
