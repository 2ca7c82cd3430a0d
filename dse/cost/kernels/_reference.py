"""Which coefficients price an op on a GPU: its own, those of kindred GPUs, or physical constants.

*Target* tier: the GPU has a table of its own. *Cross* tier: it has none (or is told to forget it);
its limits and features go through the heads of the reference GPUs nearest in architecture, and the
result is shrunk towards constants that hold on every GPU measured so far. Shrinking matters: heads
that fit a generation perfectly mispredict the next, where fixed efficiencies err by a few percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dse.base.errors import CatalogError
from dse.cost.kernels import _coefficients
from dse.cost.kernels._coefficients import KernelSlice, KernelTable
from dse.cost.kernels._head import Head
from dse.cost.kernels._terms import WINDOWED
from dse.cost.kernels._transfer import Transfer
from dse.hardware.gpu import GPU

ENGINES = ("vllm", "sglang", "trtllm")
RIDGE_OCTAVE, PER_SM_OCTAVE = 0.4, 0.8
ANOTHER_MEMORY_OCTAVES = 1.5

# Efficiencies and launch times as on an H100, by family: medians over the measured parts, rounded;
# attention decode as measured above 20 µs (6 µs, 0.75 of the FLOP/s, 0.94 of the bytes/s, which the
# bytes in flight of a Blackwell turn into 0.87).
PRIORS = {
    "gemm": Head.constant(compute=0.75, memory=0.85, launch_s=4e-6),
    "moe": Head.constant(compute=0.55, memory=0.75, launch_s=15e-6),
    "prefill_attention": Head.constant(compute=0.62, memory=0.80, launch_s=8e-6),
    "decode_attention": Head.constant(compute=0.75, memory=0.94, launch_s=6e-6),
    "mla_decode": Head.constant(compute=0.65, memory=0.80, launch_s=8e-6),
    "mla_prefill": Head.constant(compute=0.60, memory=0.80, launch_s=10e-6),
    "indexer": Head.constant(compute=0.40, memory=0.70, launch_s=8e-6),
    "linear_attention": Head.constant(compute=0.20, memory=0.70, launch_s=12e-6),
    "elementwise": Head.constant(compute=0.50, memory=0.85, launch_s=2e-6),
}
# Weight of the constants against the nearest references on another architecture; on the same one
# they count for nothing. Attention decode is the kernel that ports worst and the prior prices best.
# Chosen on B200 priced by Hopper, so the same errors on other Blackwells are no independent proof.
PRIOR_WEIGHT = {
    "gemm": 0.3,
    "moe": 0.1,
    "prefill_attention": 0.0,
    "decode_attention": 0.9,
    "mla_decode": 0.7,
    "mla_prefill": 0.4,
}
DEFAULT_PRIOR_WEIGHT = 0.3
# Factors of an 80% interval: deciles of measured over predicted for a sibling (GB200 priced by a
# B200) and, by family, across architectures (B200 priced by Hopper).
SIBLING_INTERVAL = (0.92, 1.11)
FOREIGN_INTERVALS = {
    "gemm": (0.85, 1.61),
    "moe": (0.62, 1.68),
    "prefill_attention": (0.69, 1.36),
    "decode_attention": (0.79, 2.66),
    "mla_decode": (0.76, 1.55),
    "mla_prefill": (0.79, 1.33),
}
DEFAULT_FOREIGN_INTERVAL = (0.60, 1.80)

# Where a number format was never measured, the next one in kind; its bytes and FLOP stay the op's.
SUBSTITUTES = {
    "fp8": ("fp8_block", "bf16"),
    "fp8_block": ("fp8", "bf16"),
    "int8": ("fp8", "fp8_block", "bf16"),
    "nvfp4": ("mxfp4_fp8", "fp8_block", "fp8", "bf16"),
    "mxfp4": ("nvfp4", "mxfp4_fp8", "fp8_block", "bf16"),
    "mxfp4_fp8": ("nvfp4", "fp8_block", "fp8", "bf16"),
    "int4_fp8": ("int4_wo", "fp8_block", "bf16"),
    "int4_wo": ("mxfp4_wo", "int8_wo", "bf16"),
    "mxfp4_wo": ("int4_wo", "int8_wo", "bf16"),
    "nvfp4_wo": ("mxfp4_wo", "int4_wo", "int8_wo", "bf16"),
    "int8_wo": ("int4_wo", "mxfp4_wo", "bf16"),
    "fp8_wo": ("int8_wo", "int4_wo", "mxfp4_wo", "bf16"),
    "fp8_block_wo": ("int8_wo", "int4_wo", "mxfp4_wo", "bf16"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One opinion of a price: a head, the format of its arithmetic (None: the op's own), what its
    efficiencies become on the GPU priced (None: they are that GPU's), and its weights in
    arithmetic, HBM, soft resource and launch.
    """

    ALONE: ClassVar[tuple[float, ...]] = (1.0, 1.0, 1.0, 1.0)

    head: Head
    compute: str | None = None
    transfer: Transfer | None = None
    weights: tuple[float, ...] = ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """Parts whose weighted geometric mean is the price (each weight sums to one over them), and the
    factors that bound 80% of measurements.
    """

    parts: tuple[Part, ...]
    low: float
    high: float


def choose(table: KernelTable, wanted: "Wanted", variant: str) -> KernelSlice | None:
    """The slice of `table` in format `variant` that comes nearest to `wanted`, the windowed path of
    its implementation where that was measured apart and is wanted; None without one.
    """
    found = table.find(wanted.family, variant)
    if not found:
        return None
    best = max(found, key=wanted.closeness)
    apart = table.find(wanted.family, f"{variant}{WINDOWED}") if wanted.windowed else ()
    return next((each for each in apart if each.implementation == best.implementation), best)


def likely(
    table: KernelTable, wanted: "Wanted", variant: str, most: int
) -> tuple[KernelSlice, ...]:
    """The one slice of the implementation asked for where `table` has it, else the nearest slice of
    each of `most` engines. What was a fallback there need not be one on another architecture.
    """
    found = sorted(table.find(wanted.family, variant), key=wanted.closeness, reverse=True)
    named = [each for each in found if each.implementation in wanted.asked]
    found = [each for each in found if not each.is_fallback]
    if most > 1:
        named = [each for each in named if each in found]
    if named or most == 1:
        return tuple((named or found)[:1])
    engines = dict.fromkeys(each.engine for each in found)
    best = [next(each for each in found if each.engine == engine) for engine in engines]
    return tuple(best[:most])


def kindred(gpu: GPU, table: KernelTable) -> bool:
    """Whether two GPUs share kernels: one architecture (blackwell, blackwell-ultra) and memories of
    one class. A Blackwell with GDDR has other tensor cores than one with HBM, and the bandwidth of
    an SM tells them apart.
    """
    same = gpu.architecture.split("-")[0] == table.architecture.split("-")[0]
    return same and abs(_per_sm_octaves(gpu, table)) < ANOTHER_MEMORY_OCTAVES


def _per_sm_octaves(gpu: GPU, table: KernelTable) -> float:
    there = table.gpu_facts["bytes_per_s_per_sm"]
    return float(np.log2(gpu.hbm_bytes_per_s / gpu.sm_count / there))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an op asks of a table: `family`, number format, head size (0 without heads), and the
    implementations or engines to follow, best first (and, if it matters, the format of their
    arithmetic), and whether its layer has a window.
    """

    family: str
    variant: str
    d_head: float
    asked: tuple[str, ...]
    windowed: bool = False

    @property
    def variants(self) -> tuple[str, ...]:
        """The op's number format, then what stands in for it."""
        return (self.variant, *SUBSTITUTES.get(self.variant, ("bf16",)))

    def closeness(self, each: KernelSlice) -> tuple[bool, int, int, bool, bool, int]:
        """Order of slices: not a fallback, the best name asked for, how many of the names fit, head
        size measured, narrow arithmetic, rows measured.

        A matrix product that never used the hardware (per-tensor FP8 experts of FlashInfer's
        CUTLASS on Hopper, at 0.11 of the roofline) is opted into by name: engines by themselves
        run another. Attention falls back by head size, and is priced so.
        """
        order = (*self.asked, *(name for name in ENGINES if name not in self.asked))
        names = (each.implementation, each.engine, each.compute)
        place = min((order.index(name) for name in names[:2] if name in order), default=len(order))
        matches = sum(name in self.asked for name in names)
        fits = not each.d_heads or self.d_head in each.d_heads
        apart = each.is_fallback and not each.d_heads and each.implementation not in self.asked
        return not apart, -place, matches, fits, each.compute != "bf16", each.n_rows


def target(gpu: GPU) -> KernelTable | None:
    """The table of `gpu` itself; None where there is none. A table of the user's comes before the
    shipped one, which still prices the families that it lacks.
    """
    shipped = _coefficients.load(gpu.name) if gpu.name in _coefficients.gpus() else None
    if not gpu.kernel_table:
        return shipped
    own = _coefficients.read(Path(gpu.kernel_table))
    if own.gpu != gpu.name:
        raise CatalogError(
            f"{gpu.kernel_table}: measured on {own.gpu}, not on {gpu.name}",
            f"fit it with `dse calibrate kernels --gpu {gpu.name}`",
        )
    return own if shipped is None else own.over(shipped)


def references(
    gpu: GPU, without: Sequence[str] = (), most: int = 5
) -> tuple[tuple[KernelTable, float], ...]:
    """Tables of the `most` nearest other GPUs, each with its distance; `without` those named.

    GPUs that measured the same number formats differ, so more are kept than a blend uses.
    """
    names = [n for n in _coefficients.gpus() if n != gpu.name and n not in without]
    tables = [_coefficients.load(name) for name in names]
    ranked = sorted(((table, distance(gpu, table)) for table in tables), key=lambda pair: pair[1])
    return tuple(ranked[:most])


def distance(gpu: GPU, table: KernelTable) -> float:
    """How unlike a reference GPU is: 2 where it shares no kernels, 1 for a variant of the same
    architecture (blackwell, blackwell-ultra), plus 0.4 for each octave between the ridge points
    and 0.8 for each between the bandwidths per SM.
    """
    ridge_there = table.gpu_facts["ridge_flop_per_byte"]
    ridge = np.log2(gpu.peak_flop_per_s["bf16"] / gpu.hbm_bytes_per_s / ridge_there)
    unlike = 0.0 if gpu.architecture == table.architecture else 1.0
    step = unlike if kindred(gpu, table) else 2.0
    away = RIDGE_OCTAVE * abs(ridge) + PER_SM_OCTAVE * abs(_per_sm_octaves(gpu, table)) + step
    return float(away)
