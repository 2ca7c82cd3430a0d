"""Rows that a fit did not see, beside what it gives them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dse.cost.collectives._coefficients import MEASURED_INTERVAL
from dse.cost.collectives.ep_dispatch import LOW_LATENCY_TOKENS
from dse.evidence.collective_rows import Array

SMALL_BYTES = 2**20
State = Literal["consistent", "links idle", "other kernels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Held-out rows of one collective: `engine` is the library or engine that ran it, `held` says
    what was held out. `size` is the message (B), `ranks` its ranks, `tokens` those of one rank in
    an expert exchange, `port_bytes` what leaves each rank's port there, and `busy` the share of the
    time for which the busier link moves; `state` says of the normal kernels whether rows agree.
    """

    gpu: str
    collective: str
    engine: str
    held: str
    size: Array
    ranks: npt.NDArray[np.int64]
    measured_s: Array
    predicted_s: Array
    tokens: Array | None = None
    port_bytes: Array | None = None
    busy: Array | None = None
    state: State | None = None

    @property
    def error(self) -> Array:
        """Signed relative errors."""
        found: Array = self.predicted_s / self.measured_s - 1.0
        return found

    @property
    def inside(self) -> npt.NDArray[np.bool_]:
        """Which rows lie in the stated 80% interval of a measured fabric."""
        low, high = MEASURED_INTERVAL
        ratio = self.measured_s / self.predicted_s
        found: npt.NDArray[np.bool_] = (ratio >= low) & (ratio <= high)
        return found

    def take(self, index: npt.NDArray[np.bool_]) -> "Unseen":
        """The rows of `index`."""
        return Unseen(
            gpu=self.gpu, collective=self.collective, engine=self.engine, held=self.held,
            size=self.size[index], ranks=self.ranks[index],
            measured_s=self.measured_s[index], predicted_s=self.predicted_s[index],
            tokens=_some(self.tokens, index), port_bytes=_some(self.port_bytes, index),
            busy=_some(self.busy, index), state=self.state,
        )  # fmt: skip

    @property
    def small(self) -> "Unseen":
        """Messages up to `SMALL_BYTES` on at most eight ranks."""
        return self.take((self.size <= SMALL_BYTES) & (self.ranks <= 8))

    @property
    def priced(self) -> "Unseen":
        """The rows of an expert exchange that its kernels are priced for: low-latency up to
        `LOW_LATENCY_TOKENS` tokens, normal beyond.
        """
        assert self.tokens is not None
        few = self.tokens <= LOW_LATENCY_TOKENS
        return self.take(few if "low-latency" in self.engine else ~few)


def _some(values: Array | None, index: npt.NDArray[np.bool_]) -> Array | None:
    return None if values is None else values[index]
