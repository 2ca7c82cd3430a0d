"""Saturation model: points per second, agreement with the simulator, accuracy on a measured sweep.

`python -m benchmarks.saturation` prints the speed, in CPU seconds of one core. With
`--rows e2e.csv --out docs/accuracy-saturation.md` it writes the accuracy page, from measured rows
(the schema of `dse validate`) and from the simulator.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dse.catalog import Catalog
from dse.evidence.calibrate_saturation import fit_saturation
from dse.evidence.measurement import read_measurements
from dse.evidence.saturation_against_sim import MODELS, Agreement, agreement, random_cases
from dse.evidence.sweep import SweepRow, sweep_rows
from dse.evidence.validate_saturation import (
    AdviceScore,
    Score,
    advice_scores,
    pool_errors,
    sweep_scores,
)
from dse.saturation.constants import Constants, SaturationFit
from dse.saturation.curve import curve_of, stack
from dse.saturation.model import Load, throughput

N_POINTS = 200_000
N_DEPLOYMENTS = 40
REPEATS = 3


def speed() -> tuple[float, float]:
    """Points per second over mixed deployments and loads on one core; ms to compile one."""
    from random import Random

    cases = random_cases(Catalog.load(), Random(1), 100)
    deployments = [next(cases).deployment for _ in range(N_DEPLOYMENTS)]
    start = time.process_time()
    curves = stack([curve_of(deployment) for deployment in deployments])
    compile_s = (time.process_time() - start) / N_DEPLOYMENTS
    rng = np.random.default_rng(0)
    which = rng.integers(0, N_DEPLOYMENTS, N_POINTS)
    load = Load(
        concurrency=np.exp(rng.uniform(0, 7, N_POINTS)),
        isl_tokens=np.exp(rng.uniform(4, 9, N_POINTS)),
        osl_tokens=np.exp(rng.uniform(3, 7, N_POINTS)),
        osl_cv2=rng.uniform(0, 1, N_POINTS),
        n_requests=1000.0,
    )
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        throughput(curves, which, load)
        times.append(time.process_time() - start)
    return N_POINTS / min(times), 1e3 * compile_s


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def sweep_section(scores: Sequence[Score]) -> str:
    """Unseen output lengths and models, beside what SLIM publishes."""
    rows = [
        (
            score.name, str(score.n_fitted), str(score.n), f"{score.throughput_mape:.1%}",
            f"{score.throughput_median:.1%}", f"{score.throughput_bias:+.1%}",
            f"{score.throughput_worst:.1%}", f"{score.tpot_mape:.1%}",
        )
        for score in scores
    ]  # fmt: skip
    rows += [
        ("SLIM as published: unseen lengths", "", "", "< 6%", "", "", "", ""),
        ("SLIM as published: unseen model", "", "", "24.3%", "", "", "", ""),
    ]
    header = (
        "unseen rows", "rows fitted", "rows scored", "throughput MAPE", "median", "bias", "worst",
        "mean TPOT MAPE",
    )  # fmt: skip
    return table(header, rows)


def worst_rows(rows: Sequence[SweepRow], n: int = 5) -> str:
    """The rows that the fit of all rows misses most."""
    from dse.evidence.calibrate_saturation import Sweep, fit_constants

    constants, _ = fit_constants(rows)
    sweep = Sweep.of(rows)
    error = sweep.predict(constants).output_tok_per_s / sweep.output_tok_per_s - 1.0
    worst = np.argsort(-np.abs(error))[:n]
    return table(
        ("model", "output tokens", "batch cap", "measured tok/s", "error"),
        [
            (
                rows[i].measured.model, f"{rows[i].measured.osl_tokens:.0f}",
                str(rows[i].measured.concurrency), f"{sweep.output_tok_per_s[i]:,.0f}",
                f"{error[i]:+.1%}",
            )
            for i in worst
        ],
    )  # fmt: skip


def constants_section(fit: SaturationFit) -> str:
    """The constants of the fit of all rows, with their intervals."""
    rows = []
    for name in Constants.names():
        value, interval = getattr(fit.constants, name), fit.intervals[name]
        scale, unit = (1e6, " µs") if name.endswith("_s") else (1.0, "")
        rows.append(
            (
                name,
                f"{scale * value:.3g}{unit}",
                f"{scale * interval.low:.3g}–{scale * interval.high:.3g}",
            )
        )
    return table(("constant", "value", "80% interval"), rows)


def advice_section(scores: Sequence[AdviceScore]) -> str:
    """The advised caps without a bound, and how often bounds were met."""
    free = [score for score in scores if score.bound_s is None]
    bound = [score for score in scores if score.bound_s is not None]
    missed = [score for score in bound if not score.meets_bound]
    rows = [
        (
            score.model, f"{score.osl_tokens:.0f}", str(score.batch_cap), f"{score.loss:.1%}",
            f"{1e3 * score.measured_tpot_s:.1f} ms", f"{score.freed_bytes / 1e9:.1f} GB",
        )
        for score in free
    ]  # fmt: skip
    header = ("model", "output tokens", "cap", "of peak lost", "measured TPOT", "KV freed")
    text = table(header, rows)
    text += (
        f"\n\nWith TPOT bounds (8 to 50 ms, where one measured cap can meet it): "
        f"{len(bound) - len(missed)} of {len(bound)} advised caps measured within the bound."
    )
    for score in missed:
        text += (
            f" {score.model}, {score.osl_tokens:.0f} output tokens, cap {score.batch_cap}: "
            f"{1e3 * score.measured_tpot_s:.1f} ms for {1e3 * (score.bound_s or 0.0):.0f} ms."
        )
    return text


def simulator_section(found: Agreement) -> str:
    """Agreement with the simulator, by model family."""
    families: list[str | None] = [None, *MODELS]
    rows = []
    for family in families:
        differences = found.differences(family)
        rows.append(
            (
                family or "all", str(len(differences)), f"{found.median_difference(family):.1%}",
                f"{np.quantile(differences, 0.9):.1%}", f"{max(differences):.0%}",
            )
        )  # fmt: skip
    text = table(("deployments", "n", "median difference", "90%", "worst"), rows)
    return f"{text}\n\nRank correlation of throughput (Spearman): {found.rank_correlation():.4f}."


def page(rows: Sequence[SweepRow], cases: int) -> str:
    """The accuracy page."""
    pools = [abs(error) for _, error in pool_errors(rows)]
    return f"""# Accuracy of the saturation model

Written by `python -m benchmarks.saturation --rows ROWS.csv --out docs/accuracy-saturation.md`;
every number is of rows that the constants did not see, unless it says otherwise.

## On a measured sweep

{len(rows)} rows of "Mind the Memory Gap" (arXiv:2503.08311): vLLM on a 64 GB H100, uniform lengths,
2,000 requests at once, `max_num_seqs` 1–512. SLIM (arXiv:2607.29575) publishes the two last lines
of the table on its own rows.

{sweep_section(sweep_scores(rows))}

The worst rows of the fit of all {len(rows)}:

{worst_rows(rows)}

## The constants

{constants_section(fit_saturation(rows, date=""))}

Intervals are clustered by model. Each constant is drawn towards a prior (`docs/saturation.md`);
what the rows do not determine keeps it.

## The advisor

Constants come from the other three models. Loss and TPOT at the advised cap are interpolated
between measured caps.

{advice_section(advice_scores(rows))}

KV pools from the catalog's facts against those printed by the engine: mean difference
{np.mean(pools):.2%}, worst {max(pools):.2%} of {len(pools)} rows.

## Against the simulator

Random legal deployments (dense, MoE, MLA; TP, TEP, EP with attention DP; four GPUs, three engines)
under random closed loops, both priced by the same kernel tables.

{simulator_section(agreement(cases))}
"""


def main() -> None:
    """Print the speed; write the accuracy page where rows are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, help="measured rows, CSV")
    parser.add_argument("--out", type=Path, default=Path("docs/accuracy-saturation.md"))
    parser.add_argument("--cases", type=int, default=500, help="random deployments to simulate")
    given = parser.parse_args()
    per_s, compile_ms = speed()
    print(f"saturation: {per_s:,.0f} points/s on one core (target 1e5: {per_s / 1e5:.1f}x)")
    print(f"compiling a deployment: {compile_ms:.1f} ms")
    if given.rows:
        rows, skipped = sweep_rows(read_measurements(given.rows), Catalog.load())
        print(f"{len(rows)} rows used; set aside: {skipped}")
        given.out.write_text(page(rows, given.cases), encoding="utf-8")
        print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
