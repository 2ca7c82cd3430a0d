"""The handful of fitted constants, where they are known from, and how they price an op."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from dse.base.digest import digest
from dse.base.source import read
from dse.base.units import Count, Fraction, Seconds
from dse.cost.work import work
from dse.hardware.gpu import GPU
from dse.model.ops import ComputeOp, Num

NORM = 4.0  # p of the norm that joins compute and memory: 1 adds them, infinity overlaps them fully
SCANS = ("decode_attention", "mla_decode", "indexer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What a sparse set of serving measurements can tell of a GPU and an engine.

    Efficiencies are shares of the data sheet's peak: HBM bandwidth while weights (`weight`) or KV
    (`kv`) stream, dense tensor FLOP/s (`compute`). `launch_s` is per kernel; the host adds `step_s`
    a step and `request_s` for each scheduled request; a step that holds prompt tokens runs without
    CUDA graphs and adds `prefill_layer_s` a layer. `pool_use` is the share of the KV pool that live
    contexts fill when it is full (admission and preemption keep the rest moving).
    """

    weight_efficiency: Fraction
    kv_efficiency: Fraction
    compute_efficiency: Fraction
    launch_s: Seconds
    step_s: Seconds
    request_s: Seconds
    prefill_layer_s: Seconds
    pool_use: Fraction

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The constants in the order of `vector`."""
        return tuple(each.name for each in fields(cls))

    def vector(self) -> tuple[float, ...]:
        """The constants as numbers."""
        return tuple(float(getattr(self, name)) for name in self.names())


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval; `level` is its coverage."""

    low: float
    high: float
    level: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationFit:
    """Constants fitted to measured rows of one GPU and engine, with their provenance.

    `intervals` by constant; `residual_quantiles` and `tpot_quantiles` of log(predicted ÷ measured)
    throughput and mean TPOT, by probability; `mape` and `median_ape` are of throughput on the rows
    that were fitted; `rows` says which rows were seen, `source` where they
    were published.
    """

    gpu: str
    engine: str
    constants: Constants
    intervals: Mapping[str, Interval]
    n_rows: Count
    rows: str
    residual_quantiles: Mapping[str, float]
    tpot_quantiles: Mapping[str, float]
    mape: float
    median_ape: float
    date: str
    source: str
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def physics_id(self) -> str:
        """Digest of what prices a point."""
        return digest(self.constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantKernels:
    """A kernel model without features: launch + ‖flop/(F·e_c), bytes/(BW·e_m)‖₄.

    The norm is never below its largest term, so no op beats its roofline.
    """

    gpu: GPU
    constants: Constants

    @property
    def in_step(self) -> bool:
        """The host's terms are fitted beside these constants."""
        return False

    @property
    def tier(self) -> str:
        """`cross`: no kernel of the target was measured."""
        return "cross"

    @property
    def physics_id(self) -> str:
        """Digest of the constants."""
        return digest(self.constants)

    def seconds(self, op: ComputeOp) -> Num:
        """Seconds of one run of `op`, launch included."""
        need, constants = work(op), self.constants
        scans = op.family in SCANS
        memory = constants.kv_efficiency if scans else constants.weight_efficiency
        flop_s = need.flop_seconds(self.gpu) / constants.compute_efficiency
        hbm_s = need.hbm_seconds(self.gpu) / memory
        longest = np.maximum(np.maximum(flop_s, hbm_s), 1e-12)
        norm = (flop_s / longest) ** NORM + (hbm_s / longest) ** NORM
        return constants.launch_s + longest * norm ** (1.0 / NORM)

    def roofline_seconds(self, op: ComputeOp) -> Num:
        """Seconds at the GPU's peaks."""
        need = work(op)
        return np.maximum(need.flop_seconds(self.gpu), need.hbm_seconds(self.gpu))

    def interval(self, op: ComputeOp) -> tuple[Num, Num]:
        """Factors (low, high): the fit's own interval is that of throughput, so none is claimed."""
        return 1.0, 1.0


def read_fit(path: str | Path) -> SaturationFit:
    """The fit that `dse calibrate saturation` wrote to `path`."""
    return read(path, SaturationFit)


@cache
def shipped_fits() -> tuple[SaturationFit, ...]:
    """Fits that ship with the catalog, by file name."""
    return tuple(read_fit(path) for path in _shipped_paths())


def shipped_fit(gpu: str, engine: str) -> SaturationFit | None:
    """The shipped fit for a GPU and an engine by name, or None: the kernel model then prices."""
    wanted = (gpu.lower(), engine.lower())
    found = (fit for fit in shipped_fits() if (fit.gpu.lower(), fit.engine.lower()) == wanted)
    return next(found, None)


def _shipped_paths() -> Iterator[Path]:
    folder = Path(str(files("dse.catalog") / "coefficients"))
    yield from sorted(folder.glob("saturation*.yaml"))
