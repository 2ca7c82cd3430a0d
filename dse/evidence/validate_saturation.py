"""How far the saturation model and its advisor are from measured sweeps.

Every score is of rows that the constants did not see: other output lengths, another model, another
family of models. The advisor is judged by constants fitted without the model that it advises on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dse.cost.memory import rank_memory
from dse.evidence.calibrate_saturation import Sweep, fit_constants, fit_saturation
from dse.evidence.sweep import SweepRow
from dse.saturation.advisor import TOLERANCE, advise
from dse.saturation.constants import Constants, SaturationFit
from dse.saturation.model import Load
from dse.serving.slo import SLO

SHORT_OUTPUT_TOKENS = 131
TPOT_BOUNDS_S = (0.008, 0.012, 0.02, 0.03, 0.04, 0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors on `n` unseen rows after a fit on `n_fitted`, as shares; the signed bias is the mean
    of predicted ÷ measured − 1.
    """

    name: str
    n_fitted: int
    n: int
    throughput_mape: float
    throughput_median: float
    throughput_bias: float
    throughput_worst: float
    tpot_mape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceScore:
    """One measured series (model and output length) under one TPOT bound (None: none).

    `loss` is the share of the best measured throughput that the advised cap gives up, among caps
    that measured within the bound. Between measured caps TPOT and cap ÷ throughput are linear.
    """

    model: str
    osl_tokens: float
    bound_s: float | None
    batch_cap: int
    loss: float
    measured_tpot_s: float
    freed_bytes: float

    @property
    def meets_bound(self) -> bool:
        """Whether the measured TPOT at the cap is within the bound."""
        return self.bound_s is None or self.measured_tpot_s <= self.bound_s


def sweep_scores(rows: Sequence[SweepRow]) -> tuple[Score, ...]:
    """Unseen output length, each model left out, and OPT models for all others."""
    scores = [_score("longer outputs", rows, lambda row: _osl(row) <= SHORT_OUTPUT_TOKENS)]
    scores += [_score(f"{model} left out", rows, _is_not(model)) for model in _models(rows)]
    opt = [model for model in _models(rows) if model.startswith("opt")]
    if 0 < len(opt) < len(_models(rows)):
        scores.append(_score("OPT models for the others", rows, lambda row: _model(row) in opt))
    return tuple(scores)


def score(name: str, constants: Constants, rows: Sequence[SweepRow], n_fitted: int) -> Score:
    """The errors of `constants` on `rows`."""
    sweep = Sweep.of(rows)
    found = sweep.predict(constants)
    error = found.output_tok_per_s / sweep.output_tok_per_s - 1.0
    tpot = np.abs(found.tpot_s / sweep.mean_tpot_s - 1.0)
    return Score(
        name=name,
        n_fitted=n_fitted,
        n=len(rows),
        throughput_mape=float(np.mean(np.abs(error))),
        throughput_median=float(np.median(np.abs(error))),
        throughput_bias=float(np.mean(error)),
        throughput_worst=float(np.max(np.abs(error))),
        tpot_mape=float(np.nanmean(tpot)),
    )


def advice_scores(
    rows: Sequence[SweepRow], bounds_s: Iterable[float | None] = (None, *TPOT_BOUNDS_S)
) -> tuple[AdviceScore, ...]:
    """The advisor on each measured series, without and with TPOT bounds that can be met."""
    found: list[AdviceScore] = []
    bounds = tuple(bounds_s)
    for model in _models(rows):
        fit = fit_saturation([row for row in rows if _model(row) != model], date="")
        for osl in sorted({_osl(row) for row in rows if _model(row) == model}):
            series = sorted(
                (row for row in rows if (_model(row), _osl(row)) == (model, osl)), key=_cap
            )
            slack = 1.0 - fit.tpot_quantiles["0.05"]
            least = min(row.measured.mean_tpot_s or np.inf for row in series)
            met = [bound for bound in bounds if bound is None or bound > least * slack]
            found += [_advice_score(series, bound, fit) for bound in met]
    return tuple(found)


def pool_errors(rows: Sequence[SweepRow]) -> tuple[tuple[SweepRow, float], ...]:
    """Each row that printed its KV pool, with our pool from the catalog's facts ÷ printed − 1."""
    found = []
    for row in rows:
        printed = row.measured.kv_pool_tokens
        if printed:
            deployment = replace(row.deployment, kv_pool_bytes=None)
            ours = rank_memory(deployment, deployment.pools[0]).kv_pool_tokens()
            found.append((row, ours / printed - 1.0))
    return tuple(found)


def _is_not(model: str) -> Callable[[SweepRow], bool]:
    return lambda row: _model(row) != model


def _score(name: str, rows: Sequence[SweepRow], seen: Callable[[SweepRow], bool]) -> Score:
    fitted = [row for row in rows if seen(row)]
    constants, _ = fit_constants(fitted)
    return score(name, constants, [row for row in rows if not seen(row)], len(fitted))


def _advice_score(
    series: Sequence[SweepRow], bound_s: float | None, fit: SaturationFit
) -> AdviceScore:
    widest = series[-1]
    measured = widest.measured
    load = Load(concurrency=1.0, isl_tokens=measured.isl_tokens, osl_tokens=measured.osl_tokens)
    advice = advise(widest.deployment, load, SLO(tpot_s=bound_s), TOLERANCE, fit=fit)
    caps = np.array([_cap(row) for row in series], dtype=float)
    rates = np.array([row.measured.output_tok_per_s for row in series], dtype=float)
    tpots = np.array([row.measured.mean_tpot_s for row in series], dtype=float)
    at = float(min(advice.batch_cap, caps[-1]))
    rate = at / float(np.interp(at, caps, caps / rates))
    within = rates[tpots <= bound_s] if bound_s is not None else rates
    return AdviceScore(
        model=measured.model,
        osl_tokens=measured.osl_tokens,
        bound_s=bound_s,
        batch_cap=advice.batch_cap,
        loss=1.0 - rate / float(within.max()),
        measured_tpot_s=float(np.interp(at, caps, tpots)),
        freed_bytes=advice.kv_bytes_freed,
    )


def _models(rows: Sequence[SweepRow]) -> list[str]:
    return sorted({_model(row) for row in rows})


def _model(row: SweepRow) -> str:
    return row.measured.model


def _osl(row: SweepRow) -> float:
    return row.measured.osl_tokens


def _cap(row: SweepRow) -> int:
    return row.deployment.pools[0].engine.max_num_seqs
