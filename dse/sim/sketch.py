"""The joint distribution of (TTFT, TPOT, E2E) over requests, small enough to store."""

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse.serving.slo import SLO

Floats = NDArray[np.float64]

# 16-bit codes: 2,048 an octave (steps of 0.034%) from 2^-16 s (15 µs) on; 0 is "not defined".
CODES_PER_OCTAVE = 2048
LOWEST_OCTAVE = -16
MAX_SAMPLES = 16384


def stride_of(n: int) -> int:
    """Of `n` requests every so many-th is kept."""
    return -(-n // MAX_SAMPLES) or 1


@dataclass(frozen=True, slots=True)
class LatencySketch:
    """`samples[i]` = (TTFT, TPOT, E2E) codes of a request, by rising E2E. `n_requests` were
    measured (every k-th is kept above 16,384); `n_rejected` more were refused and meet no SLO.
    """

    samples: NDArray[np.uint16]
    n_requests: int
    n_rejected: int = 0

    @classmethod
    def of(
        cls, ttft_s: Floats, tpot_s: Floats, e2e_s: Floats, n_rejected: int, copies: int = 1
    ) -> "LatencySketch":
        """Sketch the latencies of requests, each of which stands for `copies`; NaN where TPOT is
        not defined.
        """
        order = np.argsort(e2e_s, kind="stable")
        kept = order[:: stride_of(len(order))]
        columns = [_encode(values[kept]) for values in (ttft_s, tpot_s, e2e_s)]
        return cls(np.stack(columns, axis=1), len(order) * copies, n_rejected)

    def seconds(self) -> tuple[Floats, Floats, Floats]:
        """TTFT, TPOT and E2E of the samples in seconds; NaN where not defined."""
        decoded = _decode(self.samples)
        return decoded[:, 0], decoded[:, 1], decoded[:, 2]

    def attainment(self, slo: SLO) -> float:
        """Share of requests that meet every bound of `slo` at once; the refused meet none."""
        ttft, tpot, e2e = self.seconds()
        good = np.ones(len(ttft), dtype=bool)
        for values, bound in ((ttft, slo.ttft_s), (tpot, slo.tpot_s), (e2e, slo.e2e_s)):
            if bound is not None:
                good &= ~(values > bound * (1.0 + 1e-12))
        total = self.n_requests + self.n_rejected
        return float(good.mean()) * self.n_requests / total if total and len(good) else 0.0

    def to_bytes(self) -> bytes:
        """Compressed columns."""
        head = np.array([self.n_requests, self.n_rejected], dtype="<i8").tobytes()
        columns = np.ascontiguousarray(self.samples.T).astype("<u2")
        return head + zlib.compress(columns.tobytes(), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> "LatencySketch":
        """Read what `to_bytes` wrote."""
        n_requests, n_rejected = np.frombuffer(data[:16], dtype="<i8").tolist()
        columns = np.frombuffer(zlib.decompress(data[16:]), dtype="<u2").reshape(3, -1)
        return cls(columns.T.astype(np.uint16), n_requests, n_rejected)

    def __eq__(self, other: object) -> bool:
        """Whether two sketches hold the same."""
        return isinstance(other, LatencySketch) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]


def _encode(seconds: Floats) -> NDArray[np.uint16]:
    with np.errstate(divide="ignore", invalid="ignore"):
        octave = np.log2(np.maximum(seconds, 2.0**LOWEST_OCTAVE)) - LOWEST_OCTAVE
    codes = 1 + np.clip(np.round(octave * CODES_PER_OCTAVE), 0, 65534)
    return np.where(np.isnan(seconds), 0, codes).astype(np.uint16)


def _decode(codes: NDArray[np.uint16]) -> Floats:
    octave = (codes.astype(float) - 1.0) / CODES_PER_OCTAVE + LOWEST_OCTAVE
    return np.where(codes == 0, np.nan, np.exp2(octave))
