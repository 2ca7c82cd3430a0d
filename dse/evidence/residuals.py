"""The residual-calibration study: what measured ÷ floor is normal, and what threshold follows.

``python -m dse.evidence.residuals docs/residuals.md ROWS.csv`` diagnoses every fully specified
decode row of a file and the clean rows of the serving sample, compares with the simulator whether a
row is slower than its engine should be, and writes the page, its figure and the thresholds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from dse.cost.kernels import kernel_model
from dse.evidence.case import Case
from dse.evidence.serving_sample import read_sample
from dse.evidence.triage import regime_of
from dse.evidence.triage_examples import examples_table
from dse.evidence.triage_rows import diagnoses
from dse.evidence.validate_file import read_cases

__all__ = [
    "by_regime",
    "figure",
    "main",
    "page",
    "rates",
    "rates_by_regime",
    "study",
    "threshold_of",
    "thresholds_yaml",
]

SLOW: Final = 1.25  # measured ÷ simulated above which a row is slower than its engine should be
PRACTICE: Final = 1.3
MISSED: Final = 0.25
_GRID: Final = np.arange(PRACTICE, 10.0, 0.1)


def study(cases: Sequence[Case], predicted: pl.DataFrame) -> pl.DataFrame:
    """One row a diagnosed case: labels, `residual`, `mbu`, `regime`, `tier` of its kernel times and
    `slow` (None where the simulator does not predict it). `predicted` is in the order of `cases`.
    """
    found = pl.DataFrame(list(diagnoses(list(cases))), infer_schema_length=None)
    labels = pl.DataFrame(
        [
            {
                "gpu": each.labels.get("gpu", ""),
                "engine": each.labels.get("engine", ""),
                "model": each.labels.get("model", ""),
                "class": each.labels.get("class", ""),
                "source": each.labels.get("source", ""),
                "aside": each.set_aside,
                "tier": _tier(each),
                "graded": bool(each.labels.get("grade")),
            }
            for each in cases
        ],
        infer_schema_length=None,
    )
    simulated = predicted.select(
        ratio=pl.coalesce(
            pl.col("measured_tpot_s") / pl.col("pred_tpot_s"),
            pl.col("measured_e2e_s") / pl.col("pred_e2e_s"),
        )
    )
    rows = pl.concat([found, labels, simulated], how="horizontal")
    return rows.filter((pl.col("verdict") != "") & (pl.col("aside") == "")).with_columns(
        regime=pl.struct("class", "n_requests").map_elements(_regime, return_dtype=pl.String),
        slow=pl.col("ratio") > SLOW,
    )


def _tier(case: Case) -> str:
    """Whether the kernels of the case's GPU have tables of their own."""
    if case.deployment is None:
        return ""
    pool = case.deployment.pool("decode")
    return kernel_model(pool.gpu, pool.engine.name).tier


def _regime(row: dict[str, Any]) -> str:
    return regime_of(row["n_requests"], is_moe=row["class"] == "MoE")


def rates(rows: pl.DataFrame, threshold: float) -> tuple[float, float]:
    """(False alarms, misses) of a threshold on the residual: the share of rows as fast as their
    engine that are above it, and of slow ones below it.
    """
    known = rows.drop_nulls("slow")
    above = pl.col("residual") > threshold
    normal, slow = known.filter(~pl.col("slow")), known.filter("slow")
    false = normal.select(above.mean()).item() if normal.height else float("nan")
    missed = slow.select((~above).mean()).item() if slow.height else float("nan")
    return float(false), float(missed)


def threshold_of(rows: pl.DataFrame) -> float:
    """The residual at which the shares of false alarms and of misses add up to least, of those that
    miss at most `MISSED`: where slow rows are few the sum is flat, and its minimum lies anywhere.
    """
    false, missed = np.array([rates(rows, float(x)) for x in _GRID]).T
    return float(_GRID[np.nanargmin(np.where(missed > MISSED, np.inf, false + missed))])


def by_regime(rows: pl.DataFrame) -> dict[str, float]:
    """The threshold of each regime, to a tenth."""
    return {
        value: round(threshold_of(rows.filter(pl.col("regime") == value)), 1)
        for value in sorted(rows["regime"].unique().to_list())
    }


def rates_by_regime(rows: pl.DataFrame, limits: Mapping[str, float]) -> tuple[float, float]:
    """(False alarms, misses) of all rows, each judged by the threshold of its regime."""
    scaled = pl.col("residual") / pl.col("regime").replace_strict(limits, return_dtype=pl.Float64)
    return rates(rows.with_columns(residual=scaled), 1.0)


def page(rows: pl.DataFrame, figure: str) -> str:
    """The study as Markdown."""
    chosen = threshold_of(rows)
    lines = [
        _HEAD,
        f"![Share of rows below a residual]({figure})\n",
        "| rows | n | 10% | median | 90% | above 1.3 | MBU median |",
        "|---|---:|---:|---:|---:|---:|---:|",
        _line("all", rows),
    ]
    for label in ("regime", "engine", "gpu"):
        for value in sorted(rows[label].unique().to_list()):
            part = rows.filter(pl.col(label) == value)
            if part.height >= 10:
                lines.append(_line(value, part))
    lines += ["", "## The threshold\n", _THRESHOLD.format(slow=SLOW)]
    lines += ["| threshold | false alarms | misses |", "|---:|---:|---:|"]
    for value in sorted({PRACTICE, 2.0, 2.5, 3.0, 4.0, round(chosen, 2)}):
        false, missed = rates(rows, value)
        lines.append(f"| {value:g} | {false:.0%} | {missed:.0%} |")
    limits = by_regime(rows)
    lines += ["", _REGIMES]
    lines += ["| regime | n | threshold | false alarms | misses |", "|---|---:|---:|---:|---:|"]
    for value, own in limits.items():
        part = rows.filter(pl.col("regime") == value)
        false, missed = rates(part, own)
        lines.append(f"| {value} | {part.height} | {own:.1f} | {false:.0%} | {missed:.0%} |")
    false, missed = rates_by_regime(rows, limits)
    lines.append(f"| all, each by its own | {rows.height} | | {false:.0%} | {missed:.0%} |")
    lines += ["", examples_table(rows, limits, SLOW), _below(rows)]
    return "\n".join(lines)


def figure(rows: pl.DataFrame) -> str:
    """Cumulative shares of the residual by regime, as SVG."""
    width, height, left, top = 640, 360, 50, 20
    low, high = 1.0, 12.0
    colours = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00")

    def at(x: float, y: float) -> str:
        across = np.log(min(max(x, low), high) / low) / np.log(high / low)
        return f"{left + across * (width - left - 20):.1f},{height - 40 - y * (height - 60):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for x in (1.0, 1.3, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0):
        a, b = at(x, 0.0), at(x, 1.0)
        (x0, y0), (x1, y1) = a.split(","), b.split(",")
        parts.append(f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="#ddd"/>')
        parts.append(f'<text x="{x0}" y="{height - 22}" text-anchor="middle">{x:g}</text>')
    for i, value in enumerate(sorted(rows["regime"].unique().to_list())):
        ordered = np.sort(rows.filter(pl.col("regime") == value)["residual"].to_numpy())
        share = np.arange(1, len(ordered) + 1) / len(ordered)
        kept = np.linspace(0, len(ordered) - 1, min(len(ordered), 120)).astype(int)
        points = " ".join(at(float(ordered[j]), float(share[j])) for j in kept)
        colour = colours[i % len(colours)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(
            f'<text x="{left + 8}" y="{top + 16 * (i + 1)}" fill="{colour}">{value}</text>'
        )
    parts.append(
        f'<text x="{width // 2}" y="{height - 5}" text-anchor="middle">measured ÷ floor</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def thresholds_yaml(rows: pl.DataFrame, prefill_mfu: tuple[float, float], n_prefill: int) -> str:
    """The file that `dse triage` reads."""
    chosen, limits = threshold_of(rows), by_regime(rows)
    false, missed = rates_by_regime(rows, limits)
    regimes = ", ".join(f'"{name}": {limit:.1f}' for name, limit in limits.items())
    normal = rows.drop_nulls("slow").filter(~pl.col("slow"))["mbu"]
    good, poor = normal.quantile(0.75) or 0.0, normal.quantile(0.25) or 0.0
    return (
        "# Where a residual stops being normal: docs/residuals.md, by python -m "
        "dse.evidence.residuals.\n"
        f"escalate: {chosen:.1f}\nregimes: {{{regimes}}}\n"
        f"decode_mbu_good: {good:.2f}\ndecode_mbu_poor: {poor:.2f}\n"
        f"prefill_mfu_good: {prefill_mfu[1]:.2f}\nprefill_mfu_poor: {prefill_mfu[0]:.2f}\n"
        f'source: "{rows.height} measured decode rows and {n_prefill} prompts: false alarms '
        f"{false:.0%}, misses {missed:.0%}; bands are quartiles of rows as fast as their engine; "
        'docs/residuals.md"\n'
    )


def _line(name: str, rows: pl.DataFrame) -> str:
    low, middle, high = (rows["residual"].quantile(q) for q in (0.1, 0.5, 0.9))
    above = float(rows.select((pl.col("residual") > PRACTICE).mean()).item())
    mbu = float(rows.select(pl.col("mbu").median()).item())
    return (
        f"| {name} | {rows.height} | {low:.2f} | {middle:.2f} | {high:.2f} | {above:.0%} | "
        f"{mbu:.0%} |"
    )


def _below(rows: pl.DataFrame) -> str:
    below = rows.filter(pl.col("verdict") == "below_floor")
    lines = [
        "## Measured below the floor\n",
        f"{below.height} of {rows.height} rows, {_graded(below)} of them graded rows. The text "
        "below the table says which fact of each is wrong.\n",
        "| source | model | GPU | engine | requests | measured ÷ floor |",
        "|---|---|---|---|---:|---:|",
    ]
    lines += [
        f"| {row['source']} | {row['model']} | {row['gpu']} | {row['engine']} | "
        f"{row['n_requests']:.0f} | {row['residual']:.2f} |"
        for row in below.sort("residual").iter_rows(named=True)
    ]
    return "\n".join([*lines, "", _WRONG])


def _graded(rows: pl.DataFrame) -> str:
    """How many of `rows` are of the file of graded measurements, in words."""
    count = rows.filter(pl.col("graded")).height
    return "none" if count == 0 else str(count)


_HEAD: Final = """# Residuals: what measured ÷ floor is normal

Generated by `python -m dse.evidence.residuals docs/residuals.md ROWS.csv`. A residual is a measured
decode step (TPOT, or E2E over the answer of a static batch) over `t_opt`, the larger of its HBM,
arithmetic and network floors at the batch that really decoded (Floor First, arXiv:2607.05876).
Floor First opens a profiler above 1.3 and calls that uncalibrated. Here it is calibrated, on graded
rows with all settings known and on the clean rows of the silicon database's serving sample.
"""
_THRESHOLD: Final = """A row is *slow* if it took more than {slow} times what the simulator
predicts: kernels of that GPU as measured, the engine's host and launches, prompts in between. A
false alarm is a row as fast as its engine above the threshold, a miss a slow one below it. The
practice value fires on nearly every real server: launches, small batches, prompts in between and
exposed all-reduces put a healthy step well above its floor. At the shipped threshold the shares of
false alarms and misses add up to least, of thresholds that miss at most a quarter of the slow rows.
*Slow* rests on the simulator, whose own errors are in [accuracy.md](accuracy.md): rows of a GPU or
an engine that it misjudges count as slow too.
"""
_REGIMES: Final = """By regime, which is what `dse triage` uses: launches and start-up times weigh
more in steps of few requests, and each regime has the threshold that is best for it alone. That
gains little over one threshold for all: what tells a slow server from a busy one is which kernels
it runs, and a floor does not know them.
"""
_WRONG: Final = """The input that is wrong is the batch or the tokens per step, not a fact of the
catalog: gpt-oss on H100 measured a TTFT of 20 s beside a TPOT of 5 ms, so the server ran far fewer
than the 512 requests asked for and the rest queued; DeepSeek-R1 on GB200 carries the product of
two degrees as its tp; the Qwen3-32B rows of few sources report a TTFT a hundred times shorter than
the queue of their stated load, so they ran less than it, or speculated without saying so.

## What the largest residuals against the simulator are

Ratios are of TPOT unless said otherwise. A cause that was checked says how; others are likely ones.

| rows | predicted ÷ measured | cause |
|---|---|---|
| DeepSeek-R1 on H200, vLLM 0.7, SGLang 0.4, TensorRT-LLM 0.17 | 0.4–0.6 | likely: engines older \
than any profile, MLA without absorbed kernels or graphs |
| DeepSeek-R1 on MI300X and MI325X, SGLang | 0.6 | no kernel tables of CDNA 3: four requests take \
24 ms a step, as long as Llama 3.1 405B with ten times the bytes: likely launches of kernels that \
no account lists; TPOT of MI355X is within 11%, its TTFT is predicted 1.8 times too long |
| DeepSeek-R1 in NVFP4 on B200, TensorRT-LLM 1.3, 6 rows | 0.2–0.6 | not explained: 85 to 92 ms a \
step whether 40 or 224 requests run on 4 or 8 GPUs |
| Qwen3-32B on GB200, TensorRT-LLM 1.3 | 0.1–0.6 | not explained: one request is within 5%, 2 to \
128 take 21 to 133 ms a step in no order of load |
| Qwen3-235B on H200, vLLM 0.12 | 0.6–0.9 | not explained: the median of TTFT is within 20% |
| Falcon-180B on L40S, TensorRT-LLM 0.8 | 0.7–0.9 (throughput) | likely: all-reduce over PCIe is \
of another host |
| DeepSeek-R1 on B300, SGLang 0.5.10, 8k prompts | 0.3–0.6 | TTFT of seconds for prompts of 0.2 s: \
likely kernels compiled or tuned while serving; B200 with the same launch is within 10% |
| Qwen3-32B on H100, SGLang 0.5.1, 78 rows | 1.0–1.6, TTFT 0.2–0.4 | all requests sent at once: \
simulated with as many prompts as the concurrency, 13 of the rows come to TTFT 1.0–1.3 and TPOT \
0.8–1.1; the rows do not say it, so they are scored as the others are |
| Llama-3.1-8B FP8 on H200, vLLM 0.12 | 1.5–3.5 | cached prompts, or fewer requests than stated: \
64 prompts of 2,000 tokens in the 1.1 s that TTFT and TPOT add up to need over 80% of the FP8 peak \
of their GPU, and it decodes besides |

## Order of layouts: what is still wrong

Kendall τ is below 0.8; [accuracy.md](accuracy.md) has it and lists the pairs. Taking overlapping
repeats as ties and fitting collectives anew raised it; fitting the experts' kernels anew lowered
it, since three near ties turned. Three kinds stay wrong: Qwen3.5 on SGLang, TP alone against TP
with expert parallelism, measured up to 80% apart and predicted within 3%; gpt-oss and MiniMax on
B200, attention DP against TP; and two H100 pairs, of which that of MiniMax contradicts its
neighbours of the same sweep. What expert parallelism costs SGLang on Blackwell, and the exchange of
tokens under attention DP, are the terms to measure.

## Grade A throughput

Rows that state output tokens are within 6.6% (median of 263), those that state all tokens within
10.2% (203 rows). Without the 26 of dstack, engines of early 2025 that no profile describes, the
latter is 8.4%; without DeepSeek-R1 on MI300X and MI325X, for which there are no kernel tables,
6.4%. A profile for those engines would be a fit to the rows of one source, a factor for that GPU
and model a fudge: neither was made.

## GEMM: what brought it within its targets

On the shapes held out GEMM errs by 2.4% (median) and 3.9% (mean), aimed at are 2.5% and 4%; one
network of 32 units with Huber's bound at 0.04 erred by 2.6% and 4.2%. Now a kernel of a GPU's own
table is priced by two networks of 48 units, averaged in log time, fitted with the bound at 0.02 and
weight decay. That was chosen on eight slices, mostly poor ones, with a sixth of the shapes that a
fit sees held out too (mean, median there; one network of 32 5.3%, 3.7%): the bound alone 5.3%,
3.5%; decay alone 5.3%, 3.6%; a lower rate, or averaged weights, nothing; two to four networks 5.2%,
3.5% to 5.1%, 3.4%. Four of them with the bound at 0.02 (5.3%, 3.2%): features of clusters of two
SMs, split k, more tiles, steps of m nothing; one network of 64 units 5.2%, 3.2%; two of 48 with
decay 5.1%, 3.0%, and on the shapes held out 5.2%, 3.2% instead of 5.5%, 3.5%. Every slice was then
fitted so: the mean fell on each of the nine GPUs, by 0.2 to 0.4 points. Another GPU is priced by
the first network alone: both err as much within 0.2 points (median 15.0% instead of 15.1% without
data-centre Blackwell) and would leave 0.6 of the prices per second. On an H200 with its own table a
core prices 4.3e5 to 6.1e5 GEMMs a second from run to run, one network alone 6.8e5 to 9.7e5
(`benchmarks/kernels.py`, aimed at are 5e5). Shapes that a fit saw err nearly as much: what is left
is mostly between neighbouring m, 4 to 7% (standard deviation) in the poor slices, where vLLM's FP8
on a B200 has times a factor of two apart.
"""


def main(arguments: Sequence[str]) -> None:
    """Write page, figure and, where asked (`--thresholds=FILE`), the thresholds."""
    paths = [Path(each) for each in arguments if not each.startswith("--")]
    options: dict[str, Any] = dict(
        each[2:].split("=", 1) for each in arguments if each.startswith("--")
    )
    rows, n_prefill, bands = _collect(paths[1], options.get("cache"))
    drawn = paths[0].with_suffix(".svg")
    drawn.write_text(figure(rows), "utf-8")
    paths[0].write_text(page(rows, drawn.name), "utf-8")
    if "thresholds" in options:
        Path(options["thresholds"]).write_text(thresholds_yaml(rows, bands, n_prefill), "utf-8")


def _collect(path: Path, cache: str | None) -> tuple[pl.DataFrame, int, tuple[float, float]]:
    from dse.evidence.accuracy_page import predicted

    _, graded = read_cases(path)
    folder = Path(cache) if cache else None
    known = predicted(graded, folder and folder / "rows.parquet")
    fully = [i for i, case in enumerate(graded) if case.labels.get("grade") == "A"]
    sampled = read_sample()
    sample = predicted(sampled, folder and folder / "sample.parquet")
    found = pl.concat(
        [study([graded[i] for i in fully], known[fully]), study(sampled, sample)],
        how="diagonal_relaxed",
    )
    mfu = [value for i in fully for value in _prefill_mfu(graded[i])]
    low, high = np.quantile(mfu, (0.25, 0.75)) if mfu else (0.25, 0.5)
    return found, len(mfu), (float(low), float(high))


def _prefill_mfu(case: Case) -> list[float]:
    """MFU of a prompt measured alone: TTFT of a static batch of one."""
    from dse.evidence.floors import step_asked
    from dse.evidence.triage import triage

    alone = case.labels.get("mode") == "static" and case.labels.get("concurrency") == "1"
    if case.deployment is None or not alone or "ttft_s" not in case.measured:
        return []
    tokens = step_asked(case).isl_tokens
    found = triage(case.deployment, case.measured["ttft_s"], phase="prefill", context_tokens=tokens)
    return [found.mfu]


if __name__ == "__main__":
    main(sys.argv[1:])
