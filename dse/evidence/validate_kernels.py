"""How wrong kernel prices are: predictions against measured kernels, family by family.

*Target* tier: the shipped coefficients of a GPU on the shape groups that no fit ever saw. *Cross*
tier: a GPU priced as if it and others had no table. Beside each stand two baselines: the roofline,
and the utilisation of the nearest other GPU at the same shape.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dse.cost.kernels import KERNELS, FittedKernels, _coefficients, kernel_model
from dse.cost.kernels._reference import distance
from dse.evidence.calibrate_kernels import BUSY_S, busy_share, poisoned, samples_of, split
from dse.evidence.kernels import READERS, Slice, measured
from dse.hardware.gpu import GPU

Array = npt.NDArray[np.floating[Any]]
MOST_ROWS = 3_000  # of a slice, so that no sweep outweighs the others
BLACKWELL = ("B200-SXM", "B300-SXM", "GB200", "GB300")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Rows of one slice: measured and predicted seconds, roofline, same-shape transfer (NaN where
    the reference lacks the shape) and the stated interval factors. A `fallback` never used the
    hardware and is scored apart in the cross tier.
    """

    gpu: str
    family: str
    variant: str
    engine: str
    implementation: str
    fallback: bool
    measured_s: Array
    predicted_s: Array
    roofline_s: Array
    transfer_s: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of a set of rows: shares (0.05 is 5%), `bias` signed, `time_weighted` the sum of
    absolute errors over the sum of measured time, `inside` the share within the 80% interval.
    """

    n_rows: int
    median: float
    mean: float
    bias: float
    time_weighted: float
    inside: float
    roofline_median: float
    transfer_median: float


def score(rows: Sequence[Scored], *, busy: bool = False) -> Score | None:
    """The errors of `rows`, if `busy` of those above `BUSY_S` of roofline; None without any."""
    names = ("measured_s", "predicted_s", "roofline_s", "transfer_s", "low", "high")
    joined = {name: np.concatenate([getattr(each, name) for each in rows]) for name in names}
    keep = joined["roofline_s"] >= (BUSY_S if busy else 0.0)
    if not keep.any():
        return None
    measured, predicted, roofline, transfer, low, high = (joined[name][keep] for name in names)
    ratio = predicted / measured
    moved = transfer[np.isfinite(transfer)] / measured[np.isfinite(transfer)]
    return Score(
        n_rows=int(keep.sum()),
        median=float(np.median(np.abs(ratio - 1.0))),
        mean=float(np.mean(np.abs(ratio - 1.0))),
        bias=float(np.median(ratio) - 1.0),
        time_weighted=float(np.abs(predicted - measured).sum() / measured.sum()),
        inside=float(np.mean((measured >= low * predicted) & (measured <= high * predicted))),
        roofline_median=float(np.median(np.abs(roofline / measured - 1.0))),
        transfer_median=float(np.median(np.abs(moved - 1.0))) if len(moved) else float("nan"),
    )


def validate_kernels(
    gpus: Sequence[GPU],
    *,
    tier: Literal["target", "cross"] = "target",
    hold_out: Sequence[str] = (),
    families: Sequence[str] = tuple(READERS),
    known: Mapping[str, GPU] | None = None,
    unusable: bool = False,
    report: Callable[[str], object] = lambda line: None,
) -> list[Scored]:
    """Score the shipped coefficients on `gpus` (catalog records of measured GPUs).

    In the cross tier each GPU's own table is forgotten, and those of `hold_out`. `known` holds the
    records of possible references for the transfer baseline (all of `gpus` by default). With
    `unusable`, rows that a reader marks as measuring something else are scored too.
    """
    records = {gpu.name: gpu for gpu in gpus} | dict(known or {})
    found = []
    for gpu in gpus:
        blind = tuple({gpu.name, *hold_out}) if tier == "cross" else ()
        nearest = _nearest(gpu, records, {gpu.name, *hold_out})
        for family in families:
            other = measured(family, nearest.name) if nearest else ()
            for part in measured(family, gpu.name):
                every = dataclasses.replace(part, usable=np.ones_like(part.usable))
                asked = every if unusable else part
                scored = _score_slice(asked, gpu, tier, blind, nearest, other)
                if scored is not None:
                    found.append(scored)
        report(f"{gpu.name}: {sum(len(each.measured_s) for each in found)} rows scored so far")
    return found


def score_table(
    parts: Sequence[Slice], gpu: GPU, tier: Literal["target", "cross"], hold_out: Sequence[str] = ()
) -> list[Scored]:
    """Score the shipped coefficients on slices of a table that was measured on `gpu`."""
    blind = tuple({gpu.name, *hold_out}) if tier == "cross" else ()
    scored = [_score_slice(part, gpu, tier, blind, None, ()) for part in parts]
    return [each for each in scored if each is not None]


def by_family(rows: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Scored slices by family."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for each in rows:
        groups[each.family].append(each)
    return dict(groups)


def _score_slice(
    part: Slice,
    gpu: GPU,
    tier: str,
    blind: tuple[str, ...],
    nearest: GPU | None,
    other: Sequence[Slice],
) -> Scored | None:
    samples = samples_of(part, gpu)
    if poisoned(part, samples):
        return None
    rows = (samples.seconds > samples.roofline_s) & part.usable
    if tier == "target":
        rows &= split(samples.group)
    index = np.flatnonzero(rows)
    if len(index) > MOST_ROWS:
        index = np.sort(np.random.default_rng(0).choice(index, MOST_ROWS, replace=False))
    if not len(index):
        return None
    op = take(part.op, index)
    asked = (part.implementation, part.engine, part.compute)
    model = kernel_model(gpu, asked, "cross" if tier == "cross" else "target", without=blind)
    predicted, low, high = _predicted(model, op, part)  # type: ignore[arg-type]
    return Scored(
        gpu=part.gpu,
        family=part.family,
        variant=KERNELS[part.family]().variant(part.op),
        engine=part.engine,
        implementation=part.implementation,
        fallback=busy_share(samples.take(rows)) < _coefficients.FALLBACK_SHARE,
        measured_s=samples.seconds[index],
        predicted_s=predicted,
        roofline_s=samples.roofline_s[index],
        transfer_s=_transfer(part, op, samples.roofline_s[index], nearest, other),
        low=low,
        high=high,
    )


def _predicted(model: FittedKernels, op: Any, part: Slice) -> tuple[Array, Array, Array]:
    """Predictions and interval factors, head size by head size (coefficients may differ)."""
    n_rows = len(_columns(op)[0])
    predicted, low, high = np.empty(n_rows), np.empty(n_rows), np.empty(n_rows)
    for rows in _by_head(op, n_rows):
        some = take(op, rows)
        predicted[rows] = model.seconds(some)
        low[rows], high[rows] = model.interval(some)
    return predicted, low, high


def _by_head(op: Any, n_rows: int) -> Iterator[npt.NDArray[np.int64]]:
    heads = np.broadcast_to(getattr(op, "d_qk", 0.0), (n_rows,))
    for size in np.unique(heads):
        yield np.flatnonzero(heads == size)


def take(op: Any, index: Any) -> Any:
    """`op` with the rows `index` of its array fields."""
    fields = {f.name: getattr(op, f.name) for f in dataclasses.fields(op)}
    arrays = {k: v[index] for k, v in fields.items() if isinstance(v, np.ndarray) and v.ndim}
    return dataclasses.replace(op, **arrays)


def _columns(op: Any) -> list[Array]:
    values = (getattr(op, f.name) for f in dataclasses.fields(op))
    return [value for value in values if isinstance(value, np.ndarray) and value.ndim]


def _nearest(gpu: GPU, records: Mapping[str, GPU], without: set[str]) -> GPU | None:
    """The measured GPU most like `gpu`, whose utilisation the transfer baseline carries over."""
    names = [name for name in records if name not in without and name in _coefficients.gpus()]
    return (
        records[min(names, key=lambda name: distance(gpu, _coefficients.load(name)))]
        if names
        else None
    )


def _transfer(
    part: Slice, op: Any, roofline_s: Array, nearest: GPU | None, other: Sequence[Slice]
) -> Array:
    """Seconds if the kernel had the utilisation of the same implementation (else engine) there."""
    absent = np.full(len(roofline_s), np.nan)
    kernel = KERNELS[part.family]()
    like = [each for each in other if kernel.variant(each.op) == kernel.variant(part.op)]
    like = [e for e in like if e.engine == part.engine and e.compute == part.compute]
    same = [each for each in like if each.implementation == part.implementation] or like
    if not same or nearest is None:
        return absent
    reference = same[0]
    samples = samples_of(reference, nearest)
    utilisation = samples.roofline_s / samples.seconds
    found = dict(zip(zip(*_columns(reference.op), strict=True), utilisation, strict=True))
    there = np.array([found.get(key, np.nan) for key in zip(*_columns(op), strict=True)])
    # A kernel whose bytes all stay in L2 has no roofline, hence no utilisation to carry over.
    seconds: Array = roofline_s / np.where(there > 0.0, there, np.nan)
    return np.where(seconds > 0.0, seconds, np.nan)
