"""Fits the kernel coefficients that ship, from measured tables, and scores each on held-out shapes.

A sixth of the shape groups of every slice never enters its fit: they are predicted, and their error
and its quantiles are what the file states of the coefficients that ship. Rows and slices left out
are left out by rule and counted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dse.cost.kernels import KERNELS
from dse.cost.kernels._coefficients import KernelSlice, KernelTable, facts, folder, read, write
from dse.cost.kernels._head import Head, stack
from dse.evidence.fit_head import FitSettings, Samples, fit, predict
from dse.evidence.kernel_table import read_kernel_table
from dse.evidence.kernels import READERS, Slice
from dse.hardware.gpu import GPU

Array = npt.NDArray[np.floating[Any]]
SOURCE = "aiconfigurator-core 0.12.0 (Apache-2.0), measured latencies; own fit"
MOST_ROWS = 25_000
HELD_OUT = 6  # one group in six
BAD_FIT, RETRIES = 0.04, 3  # median error on seen rows that asks for another seed
FEW_ROWS = 1_300  # below this a smaller network, or it would learn the rows by heart
# Chosen on a sixth of the groups that fits see, never on those held out. GEMM sweeps are noisy and
# large: networks average the noise away, and decay keeps larger ones from learning it.
SETTINGS = {
    "gemm": FitSettings(hidden=(48, 48), huber=0.02, decay=5e-3, networks=2),
    "decode_attention": FitSettings(huber=0.02),
}

# A GEMM sweep whose fastest tenth takes this long timed the host, not the kernel; a 16-bit sweep
# whose large shapes stay below this share of the peak ran on a throttled or wrongly built stack.
HOST_BOUND_S = 40e-6
LARGE_S = 200e-6
BUSY_S = 20e-6  # below this roofline time a kernel is mostly launch
LEAST_GEMM_SHARE = 0.5
LEAST_MLA_SHARE = 0.3
FEWEST_LARGE = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFit:
    """One fitted slice: `head` ships; it was scored on `held_out`, predicted as `predicted_s`."""

    source: Slice
    variant: str
    head: Head
    n_rows: int
    n_beat_roofline: int
    busy_share: float
    held_out: Samples
    predicted_s: Array

    @property
    def ratio(self) -> Array:
        """Predicted ÷ measured of the held-out rows."""
        return self.predicted_s / self.held_out.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A slice left out whole, and why."""

    gpu: str
    family: str
    engine: str
    implementation: str
    n_rows: int
    rule: str


def samples_of(part: Slice, gpu: GPU) -> Samples:
    """The rows of a slice as limits and features on `gpu`."""
    terms = KERNELS[part.family]().terms(part.op, gpu, part.compute)
    shape = (len(part),)
    needs = [np.broadcast_to(x, shape) for x in (terms.flop_s, terms.hbm_s, terms.soft_s)]
    return Samples(
        needs=np.stack(needs, axis=1).astype(float),
        features=stack(terms.features, shape).astype(float),
        seconds=part.seconds,
        group=part.group,
    )


def poisoned(part: Slice, samples: Samples) -> str:
    """The rule that excludes a slice, or an empty text."""
    if part.family == "gemm" and np.quantile(samples.seconds, 0.1) > HOST_BOUND_S:
        return f"host-bound: fastest tenth above {HOST_BOUND_S * 1e6:.0f} µs"
    large = samples.needs[:, 0] > LARGE_S
    if large.sum() < FEWEST_LARGE:
        return ""
    share = float(np.median(samples.needs[large, 0] / samples.seconds[large]))
    if part.family == "gemm" and part.op.weights == "bf16" and share < LEAST_GEMM_SHARE:
        return f"large 16-bit GEMM at {share:.2f} of peak"
    if part.family == "mla_prefill" and share < LEAST_MLA_SHARE:
        return f"large MLA prefill at {share:.2f} of peak: absorbed arithmetic, 3.4 times the FLOP"
    return ""


def busy_share(samples: Samples) -> float:
    """Median of roofline over measured time of the rows whose roofline takes `BUSY_S` or more; 1
    where there are too few to say.
    """
    busy = samples.roofline_s >= BUSY_S
    if busy.sum() < FEWEST_LARGE:
        return 1.0
    return float(np.median(samples.roofline_s[busy] / samples.seconds[busy]))


def split(
    group: npt.NDArray[np.int64], seed: int = 1, share: int = HELD_OUT
) -> npt.NDArray[np.bool_]:
    """Rows whose whole group is held out: one group in `share`."""
    names = np.unique(group)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(names, max(1, len(names) // share), replace=False)
    return np.isin(group, chosen)


def subsample(rows: npt.NDArray[np.int64], most: int = MOST_ROWS) -> npt.NDArray[np.int64]:
    """At most `most` of `rows`, chosen by a fixed seed."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def settings_for(family: str, n_rows: int) -> FitSettings:
    """How a slice of `n_rows` is fitted."""
    usual = SETTINGS.get(family, FitSettings())
    return replace(usual, hidden=(16, 16), steps=3000) if n_rows < FEW_ROWS else usual


def fit_slice(part: Slice, gpu: GPU, *, whole_models: bool = False) -> SliceFit | Excluded:
    """Fit one slice, or say why not; `whole_models` holds out models (MoE), not shape groups."""
    samples = samples_of(part, gpu)
    rule = poisoned(part, samples)
    if rule:
        return Excluded(
            gpu=part.gpu,
            family=part.family,
            engine=part.engine,
            implementation=part.implementation,
            n_rows=len(part),
            rule=rule,
        )
    possible = (samples.seconds > samples.roofline_s) & part.usable
    hidden = split(part.cohort if whole_models else samples.group) & possible
    settings = settings_for(part.family, int(possible.sum()))
    head = _fit_or_retry(samples.take(subsample(np.flatnonzero(possible & ~hidden))), settings)
    held_out = samples.take(hidden)
    return SliceFit(
        source=part,
        variant=KERNELS[part.family]().variant(part.op),
        head=head,
        n_rows=int(possible.sum()),
        n_beat_roofline=int((samples.seconds <= samples.roofline_s).sum()),
        busy_share=busy_share(samples.take(possible)),
        held_out=held_out,
        predicted_s=predict(head, held_out),
    )


def _fit_or_retry(seen: Samples, settings: FitSettings) -> Head:
    """The fit, or where it does not even follow the rows it saw, the best of a few other seeds."""

    def error(head: Head) -> float:
        return float(np.median(np.abs(predict(head, seen) / seen.seconds - 1.0)))

    head = fit(seen, settings)
    for seed in range(1, RETRIES):
        if error(head) < BAD_FIT:
            break
        head = min(head, fit(seen, replace(settings, seed=seed)), key=error)
    return head


def calibrate_kernels(
    gpus: Sequence[GPU],
    *,
    families: Sequence[str] = tuple(READERS),
    into: Path | None = None,
    report: Callable[[str], object] = print,
) -> list[SliceFit | Excluded]:
    """Fit every slice of `gpus` (catalog records) in `families` and write one file a GPU into
    `into` (the shipped folder by default), where other families keep the coefficients they have.
    Returns the fits with their held-out predictions.
    """
    found: list[SliceFit | Excluded] = []
    target = into or folder()
    target.mkdir(parents=True, exist_ok=True)
    for gpu in gpus:
        fits = [fit_slice(part, gpu) for part in _slices(gpu.name, families)]
        for each in fits:
            report(line(each))
        kept = [each for each in fits if isinstance(each, SliceFit)]
        if kept:
            file = target / f"{gpu.name}.json"
            write(file, _joined(_table(gpu, kept), file, families))
        found += fits
    return found


def calibrate_table(
    path: Path,
    gpu: GPU,
    *,
    into: Path,
    report: Callable[[str], object] = print,
    in_step: bool = False,
) -> list[SliceFit | Excluded]:
    """Fit a table in the documented schema (`dse.evidence.kernel_table`), measured on `gpu`, and
    write its coefficients as `into`/<gpu>.json, unless no slice could be fitted. `in_step`:
    measured inside an engine's steps.
    """
    fits = [fit_slice(part, gpu) for part in read_kernel_table(path, gpu.name)]
    for each in fits:
        report(line(each))
    kept = [each for each in fits if isinstance(each, SliceFit)]
    if kept:
        into.mkdir(parents=True, exist_ok=True)
        table = replace(_table(gpu, kept, source=path.name), in_step=in_step)
        write(into / f"{gpu.name}.json", table)
    return fits


def line(each: SliceFit | Excluded) -> str:
    """One line about a slice: rows used and dropped, held-out error, interval."""
    if isinstance(each, Excluded):
        return (
            f"{each.gpu} {each.family} {each.engine} {each.implementation}: "
            f"{each.n_rows} rows excluded, {each.rule}"
        )
    error = np.abs(each.ratio - 1.0)
    low, high = interval(each.ratio)
    part = each.source
    return (
        f"{part.gpu} {part.family} {each.variant} {part.engine} {part.implementation}: "
        f"{each.n_rows} rows, {each.n_beat_roofline} beat the roofline and were dropped; held out "
        f"{len(error)}: median {np.median(error):.1%} mean {np.mean(error):.1%}, "
        f"interval {low:.2f}-{high:.2f}"
    )


def interval(ratio: Array) -> tuple[float, float]:
    """Factors on a prediction that cover 80% of what was measured."""
    low, high = np.quantile(1.0 / ratio, [0.1, 0.9])
    return float(low), float(high)


def _slices(gpu: str, families: Sequence[str]) -> Iterable[Slice]:
    for family in families:
        yield from READERS[family].slices((gpu,))


def _table(gpu: GPU, fits: Sequence[SliceFit], source: str = SOURCE) -> KernelTable:
    return KernelTable(
        gpu=gpu.name,
        architecture=gpu.architecture,
        gpu_facts=facts(gpu),
        provenance={"source": source, "fitted": date.today().isoformat()},
        slices=tuple(_encode(each) for each in fits),
        digest="",
    )


def _joined(table: KernelTable, file: Path, families: Sequence[str]) -> KernelTable:
    """`table` and what `file` holds of other families, in the order of the readers."""
    old = read(file).slices if file.exists() else ()
    kept = [each for each in old if each.family not in families]
    order = list(READERS)
    slices = sorted((*table.slices, *kept), key=lambda each: order.index(each.family))
    return replace(table, slices=tuple(slices))


def _encode(each: SliceFit) -> KernelSlice:
    low, high = interval(each.ratio)
    heads = getattr(each.source.op, "d_qk", None)
    measured = () if heads is None else tuple(int(d) for d in np.unique(heads))
    return KernelSlice.encode(
        each.head,
        family=each.source.family,
        variant=each.variant,
        engine=each.source.engine,
        version=each.source.version,
        implementation=each.source.implementation,
        compute=each.source.compute,
        d_heads=measured,
        n_rows=each.n_rows,
        low=round(low, 4),
        high=round(high, 4),
        busy_share=round(each.busy_share, 4),
    )
