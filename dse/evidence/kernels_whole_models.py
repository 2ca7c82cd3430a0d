"""How well expert kernels are priced for a model that no fit saw: whole models held out."""

import numpy as np

from dse.evidence.calibrate_kernels import Array, SliceFit, fit_slice, samples_of, split
from dse.evidence.fit_head import predict
from dse.evidence.kernels import measured
from dse.hardware.gpu import GPU

MANY_ROWS = 5_000


def whole_models(gpu: GPU) -> str:
    """Errors of MoE fits from which whole models were held out, slice by slice."""
    out = [
        f"On {gpu.name}, slices of {MANY_ROWS:,} rows and more; a model is (hidden, inter, top-k, "
        "experts), and a sixth of them is held out. *Every row* scores the mistuned rows of the "
        "held-out models too.\n",
        "| engine, implementation | format | models | rows held out | median | mean | "
        "every row: rows | median | mean |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    errors, with_mistuned = [], []
    for part in measured("moe", gpu.name):
        fitted = fit_slice(part, gpu, whole_models=True) if len(part) >= MANY_ROWS else None
        if isinstance(fitted, SliceFit):
            error, every = np.abs(fitted.ratio - 1.0), _every_error(fitted, gpu)
            errors.append(error)
            with_mistuned.append(every)
            out.append(
                f"| {part.engine} `{part.implementation[:40]}` | {fitted.variant} | "
                f"{len(np.unique(part.cohort))} | {_errors(error)} | {_errors(every)} |"
            )
    joined = [_errors(np.concatenate(each)) for each in (errors, with_mistuned)]
    out.append(f"| all | | | {joined[0]} | {joined[1]} |")
    return "\n".join(out) + "\n"


def _every_error(fitted: SliceFit, gpu: GPU) -> Array:
    """Errors on the held-out models of `fitted`, rows that no fit would use included."""
    part = fitted.source
    samples = samples_of(part, gpu)
    held = samples.take(split(part.cohort) & (samples.seconds > samples.roofline_s))
    return np.abs(predict(fitted.head, held) / held.seconds - 1.0)


def _errors(error: Array) -> str:
    return f"{len(error):,} | {np.median(error):.1%} | {np.mean(error):.1%}"
