"""What a kernel family knows: from an op and a GPU to hardware limits and features.

A family knows which features of a shape decide its efficiency; the limits are those of
`dse.cost.work`, which walls read too. It knows no coefficient: those are data
(`dse/catalog/coefficients`), applied by `_head.Head`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dse.cost.work import Work, work
from dse.hardware.gpu import GPU
from dse.model.ops import ComputeOp, Num

# A feature's logarithm never sees an argument below this (a zero-sized shape).
TINY = 1e-9

# Ends the format of attention whose layer has a window, where a kernel takes another path then.
WINDOWED = "_windowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What bounds a kernel, in seconds at the data sheet's peaks, and what shapes its efficiency.

    `flop_s` tensor cores, `hbm_s` memory; `soft_s` a third resource that slows a kernel but is no
    hard limit, hence no part of the roofline: exponentials on the special-function units (a kernel
    may evaluate polynomials instead), or bytes that stay in the L2. `features` are dimensionless
    logarithms, one array each, all broadcast together.
    """

    flop_s: Num
    hbm_s: Num
    soft_s: Num
    features: tuple[Num, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One family of kernels; `kind` is the `family` of the ops that it prices."""

    feature_names: ClassVar[tuple[str, ...]] = ()

    def variant(self, op: Any) -> str:
        """The number formats that tell coefficients apart, e.g. `fp8_block` or `int4_wo`."""
        raise NotImplementedError

    def features(self, op: Any, needs: Terms, moved_bytes: Num, gpu: GPU) -> tuple[Num, ...]:
        """What the efficiency of `op` depends on; `needs` holds its limits, `moved_bytes` all it
        reads and writes, cached or not.
        """
        raise NotImplementedError

    def soft_s(self, done: Work, gpu: GPU) -> Num:
        """Seconds of the third resource; exponentials unless the family says otherwise."""
        return done.sfu_seconds(gpu)

    def terms(self, op: ComputeOp, gpu: GPU, compute: str | None = None) -> Terms:
        """Limits and features of `op` on `gpu`; `compute` names the format of the arithmetic where
        an implementation uses a wider one than the op allows (FP8 KV multiplied in bf16).
        """
        done = work(op)
        peaks = gpu.peak_flop_per_s
        if compute is None:
            flop_s = done.flop_seconds(gpu)
        else:
            flop_s = done.flop / min(peaks.get(compute, peaks["bf16"]), _peak(done, gpu))
        limits = Terms(
            flop_s=flop_s,
            hbm_s=done.hbm_seconds(gpu),
            soft_s=self.soft_s(done, gpu),
            features=(),
        )
        features = self.features(op, limits, done.hbm_bytes + done.activation_bytes, gpu)
        return Terms(
            flop_s=limits.flop_s, hbm_s=limits.hbm_s, soft_s=limits.soft_s, features=features
        )


def _peak(done: Work, gpu: GPU) -> float:
    peaks = gpu.peak_flop_per_s
    return peaks.get(done.compute, peaks["bf16"])


def log(value: Num) -> Any:
    """Natural logarithm that stays finite at zero."""
    return np.log(np.maximum(value, TINY))


def log_us(seconds: Num) -> Any:
    """Logarithm of a time in microseconds, floored at a nanosecond."""
    return np.log(np.maximum(np.multiply(seconds, 1e6), 1e-3))


def balance(needs: Terms, floor_s: float = 1e-9) -> Any:
    """Logarithm of arithmetic over memory time: above 0 right of the ridge point."""
    return np.log(np.maximum(needs.flop_s, floor_s) / np.maximum(needs.hbm_s, floor_s))


def last_wave(tiles: Num, gpu: GPU) -> Any:
    """Logarithm of the waste of the last wave: `ceil(tiles / n_sm) · n_sm / tiles ≥ 1`."""
    per_sm = np.maximum(tiles, TINY) / gpu.sm_count
    return np.log(np.ceil(per_sm) / per_sm)


def up(value: Num, tile: float) -> Any:
    """`value` rounded up to whole tiles, at least one."""
    return np.maximum(np.ceil(np.divide(value, tile)), 1.0) * tile
