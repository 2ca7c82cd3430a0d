"""Saturation constants from a sparse sweep of serving measurements.

Robust non-linear least squares on the logarithms of throughput and, at half the weight, of mean
TPOT (soft-L1 loss). Sparse rows of like models cannot tell all constants apart (launches from host
time, weights from both), so each is drawn towards a prior of stated width; a constant that the rows
do not determine keeps it, and its interval says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import norm

from dse.base.digest import digest
from dse.base.errors import UserError
from dse.catalog import Catalog
from dse.cost.tables import Array
from dse.evidence.measurement import read_measurements
from dse.evidence.sweep import SweepRow, sweep_rows
from dse.saturation.constants import Constants, Interval, SaturationFit
from dse.saturation.curve import Curves, curve_of, stack, take
from dse.saturation.model import Load, Steady, throughput
from dse.serving.deployment import Deployment

# Constant: (centre, standard deviation of its logarithm). Efficiencies centre on what the kernel
# tables of Hopper show for large shapes and their spread between implementations (kernel model);
# launches on a CUDA graph's kernel-to-kernel gap; host times are known to a factor e only.
PRIORS: Final[Mapping[str, tuple[float, float]]] = {
    "weight_efficiency": (0.92, 0.05),
    "kv_efficiency": (0.85, 0.10),
    "compute_efficiency": (0.70, 0.15),
    "launch_s": (5e-6, 0.30),
    "step_s": (5e-4, 1.0),
    "request_s": (2e-5, 1.0),
    "prefill_layer_s": (4e-4, 0.50),
    "pool_use": (0.92, 0.05),
}
PRIOR_WEIGHT = 0.03  # log residual that counts as much as one prior deviation: the noise of a row
TPOT_WEIGHT = 0.5
ROBUST_SCALE = 0.03  # residuals beyond it count linearly
LEVEL = 0.8
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Rows prepared for repeated prediction: the distinct deployments are compiled once a trial."""

    rows: tuple[SweepRow, ...]
    deployments: tuple[Deployment, ...]
    which: NDArray[np.intp]
    pool_bytes: Array
    max_seqs: Array
    load: Load
    output_tok_per_s: Array
    mean_tpot_s: Array

    @classmethod
    def of(cls, rows: Sequence[SweepRow]) -> "Sweep":
        """Prepare `rows`; those that differ in batch cap and KV pool only share their tables."""
        if not rows:
            raise UserError("no row to fit", "see which were set aside, and why")
        cap = max(row.deployment.pools[0].engine.max_num_seqs for row in rows)
        tables = {digest(each): each for each in (_without_cap(row, cap) for row in rows)}
        index = {key: i for i, key in enumerate(tables)}
        which = [index[digest(_without_cap(row, cap))] for row in rows]
        curves = [curve_of(row.deployment, _PRIOR) for row in rows]
        use = PRIORS["pool_use"][0]
        measured = [row.measured for row in rows]
        return cls(
            rows=tuple(rows),
            deployments=tuple(tables.values()),
            which=np.array(which),
            pool_bytes=np.array([curve.pool_bytes for curve in curves]) / use,
            max_seqs=np.array([curve.max_seqs for curve in curves]),
            load=Load(
                concurrency=np.array([row.concurrency for row in rows]),
                isl_tokens=np.array([row.isl_tokens for row in measured]),
                osl_tokens=np.array([row.osl_tokens for row in measured]),
                n_requests=np.array([row.n_requests for row in rows]),
            ),
            output_tok_per_s=np.array([row.output_tok_per_s or np.nan for row in measured]),
            mean_tpot_s=np.array([row.mean_tpot_s or np.nan for row in measured], dtype=float),
        )

    def predict(self, constants: Constants) -> Steady:
        """Each row under `constants`."""
        curves = stack([curve_of(deployment, constants) for deployment in self.deployments])
        curves = _with_caps(take(curves, self.which), self, constants.pool_use)
        return throughput(curves, np.arange(len(self.rows)), self.load)

    def residuals(self, constants: Constants) -> Array:
        """log(predicted ÷ measured) of throughput, then of mean TPOT at its weight (0 where a row
        has none).
        """
        found = self.predict(constants)
        rate = np.log(found.output_tok_per_s / self.output_tok_per_s)
        tpot = np.log(found.tpot_s / self.mean_tpot_s)
        return np.concatenate([rate, TPOT_WEIGHT * np.nan_to_num(tpot)])


def fit_constants(rows: Sequence[SweepRow]) -> tuple[Constants, Mapping[str, Interval]]:
    """Constants that fit `rows`, and their confidence intervals.

    Intervals are clustered by model (rows of one model err alike): the sandwich estimator of White
    (1980) with the model's rows as a cluster, the prior as one more.
    """
    sweep = Sweep.of(rows)
    centre, width = _prior_arrays()

    def residuals(x: Array) -> Array:
        return np.concatenate([sweep.residuals(_constants(x)), PRIOR_WEIGHT * (x - centre) / width])

    upper = np.where([name in _SHARES for name in PRIORS], np.log(0.999), np.inf)
    found = least_squares(
        residuals,
        centre,
        bounds=(-np.inf, upper),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
        diff_step=1e-3,
        xtol=1e-5,
        ftol=1e-6,
    )
    deviation = _deviations(sweep, found, residuals)
    reach = float(norm.ppf(0.5 + LEVEL / 2.0)) * deviation
    low, high = np.exp(found.x - reach), np.minimum(np.exp(found.x + reach), np.exp(upper))
    intervals = {
        name: Interval(low=float(a), high=float(b), level=LEVEL)
        for name, a, b in zip(PRIORS, low, high, strict=True)
    }
    return _constants(found.x), intervals


def fit_saturation(rows: Sequence[SweepRow], *, date: str) -> SaturationFit:
    """The fit of all `rows`, which must share one GPU and one engine, with its provenance."""
    gpus = sorted({row.deployment.pools[0].gpu.name for row in rows})
    engines = sorted({row.deployment.pools[0].engine.label for row in rows})
    if len(gpus) != 1 or len(engines) != 1:
        raise UserError(
            f"the rows mix {', '.join(gpus)} and {', '.join(engines)}", "fit each by itself"
        )
    constants, intervals = fit_constants(rows)
    error, tpot_error = np.split(Sweep.of(rows).residuals(constants), 2)
    measured = [row.measured for row in rows]
    lengths = sorted({f"{row.isl_tokens:.0f}/{row.osl_tokens:.0f}" for row in measured})
    models = sorted({row.model for row in measured})
    return SaturationFit(
        gpu=gpus[0],
        engine=engines[0],
        constants=constants,
        intervals=intervals,
        n_rows=len(rows),
        rows=f"{', '.join(models)}; input/output tokens {', '.join(lengths)}",
        residual_quantiles=_quantiles(error),
        tpot_quantiles=_quantiles(tpot_error / TPOT_WEIGHT),
        mape=float(np.mean(np.abs(np.expm1(error)))),
        median_ape=float(np.median(np.abs(np.expm1(error)))),
        date=date,
        source="; ".join(sorted({row.source or "not stated" for row in measured})),
    )


def calibrate_rows(
    path: str | Path, catalog: Catalog, *, date: str
) -> tuple[SaturationFit, Mapping[str, int]]:
    """The fit of the usable rows of a CSV file, and how many were set aside for which reason."""
    rows, skipped = sweep_rows(read_measurements(path), catalog)
    if not rows:
        counts = "; ".join(f"{n} rows: {reason}" for reason, n in skipped.items())
        raise UserError(f"{path} has no row to fit ({counts})", "give a sweep of one engine")
    return fit_saturation(rows, date=date), skipped


def write_fit(fit: SaturationFit, path: str | Path) -> None:
    """Write `fit` as the YAML that `dse.saturation.constants.read_fit` reads."""
    lines = [f"gpu: {fit.gpu}", f'engine: "{fit.engine}"', "constants:"]
    for name in Constants.names():
        value, unit = getattr(fit.constants, name), " s" if name.endswith("_s") else ""
        lines.append(f"  {name.removesuffix('_s')}: {value:.5g}{unit}")
    lines.append(f"intervals: # {LEVEL:.0%}, clustered by model")
    for name, interval in fit.intervals.items():
        lines.append(f"  {name}: {{low: {interval.low:.4g}, high: {interval.high:.4g}}}")
    lines += [
        f"n_rows: {fit.n_rows}",
        f"rows: {_folded(fit.rows)}",
        "residual_quantiles: # of log(predicted / measured) throughput",
        f"  {_mapping(fit.residual_quantiles)}",
        "tpot_quantiles: # of log(predicted / measured) mean TPOT",
        f"  {_mapping(fit.tpot_quantiles)}",
        f"mape: {fit.mape:.4f}",
        f"median_ape: {fit.median_ape:.4f}",
        f'date: "{fit.date}"',
        f"source: {_folded(fit.source)}",
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _quantiles(error: Array) -> dict[str, float]:
    return {f"{q:g}": float(np.quantile(error, q)) for q in QUANTILES}


def _mapping(quantiles: Mapping[str, float]) -> str:
    return "{" + ", ".join(f'"{q}": {v:.4f}' for q, v in quantiles.items()) + "}"


def _folded(text: str) -> str:
    return f">-\n  {text}"


def _constants(x: Array) -> Constants:
    values = dict(zip(PRIORS, map(float, np.exp(x)), strict=True))
    return Constants(**values)


_PRIOR: Final = Constants(**{name: centre for name, (centre, _) in PRIORS.items()})
_SHARES: Final = ("weight_efficiency", "kv_efficiency", "compute_efficiency", "pool_use")


def _prior_arrays() -> tuple[Array, Array]:
    centre = np.log([centre for centre, _ in PRIORS.values()])
    return centre, np.array([width for _, width in PRIORS.values()])


def _without_cap(row: SweepRow, cap: int) -> Deployment:
    """The row's deployment with the widest batch cap and its own pool arithmetic."""
    deployment = row.deployment
    pool = deployment.pools[0]
    engine = replace(pool.engine, max_num_seqs=cap)
    return replace(deployment, pools=(replace(pool, engine=engine),), kv_pool_bytes=None)


def _with_caps(curves: Curves, sweep: Sweep, pool_use: float) -> Curves:
    return replace(curves, pool_bytes=pool_use * sweep.pool_bytes, max_seqs=sweep.max_seqs)


def _deviations(sweep: Sweep, found: Any, residuals: Any) -> Array:
    """Standard deviations of the log constants."""
    x, count = found.x, len(sweep.rows)
    raw = residuals(x)
    jacobian = np.stack(
        [(residuals(x + step) - raw) / 1e-3 for step in 1e-3 * np.eye(len(x))], axis=1
    )
    pull = 1.0 / np.sqrt(1.0 + (raw / ROBUST_SCALE) ** 2)  # soft-L1: derivative of the loss
    score = (pull * raw)[:, None] * jacobian
    clusters = [row.measured.model for row in sweep.rows]
    groups = clusters if len(set(clusters)) > 1 else [str(i) for i in range(count)]
    meat = jacobian[2 * count :].T @ jacobian[2 * count :] * PRIOR_WEIGHT**2
    for name in set(groups):
        members = np.array([each == name for each in groups])
        total = score[: 2 * count][np.tile(members, 2)].sum(axis=0)
        meat = meat + np.outer(total, total)
    bread = np.linalg.inv((pull[:, None] * jacobian).T @ jacobian)
    return np.asarray(np.sqrt(np.diag(bread @ meat @ bread)))
