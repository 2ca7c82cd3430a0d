"""A simulated run for people: latencies, a histogram, where step time goes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dse.base.units import counted
from dse.cli._output import console

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 48
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red", "white")
DEFINITIONS = (
    "TTFT: arrival to first output token, queueing included. TPOT: (E2E - TTFT) / (OSL - 1) of a "
    "request. ITL: each gap between tokens. Goodput: requests per second that meet every bound."
)


def show(found: Mapping[str, Any], metrics: Any) -> None:
    """Print the summary of one run."""
    from rich.table import Table

    out = console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "mean", "p50", "p90", "p95", "p99"):
        table.add_column(name, justify="left" if not name else "right")
    for name in ("ttft", "tpot", "itl", "e2e", "queue"):
        spread = found[f"{name}_s"]
        table.add_row(name.upper(), *(seconds(spread[k]) for k in spread))
    out.print(table)
    ttft, tpot, e2e = metrics.latency_sketch.seconds()
    for name, values in (("TTFT", ttft), ("TPOT", tpot), ("E2E", e2e)):
        out.print(f"{name:5s}{histogram(values)}")
    out.print()
    for line in _figures(found):
        out.print(line)
    out.print(f"\nstep time {bar(metrics.step_breakdown)}")
    out.print(f"bound by  {bar(metrics.resource_breakdown)}")
    why = f" ({found['served_because']})" if found["served_because"] else ""
    out.print(f"[dim]{DEFINITIONS} Served by the {found['served_by']} path{why}.[/dim]")


def _figures(found: Mapping[str, Any]) -> list[str]:
    f = found
    return [
        f"requests   {f['n_requests']} in {f['duration_s']:.4g} s: {f['request_per_s']:.4g} req/s, "
        f"goodput {f['goodput_req_per_s']:.4g} req/s ({f['slo_attainment']:.1%} meet the SLO), "
        f"{f['n_rejected']} refused",
        f"tokens     {f['output_tok_per_s']:,.0f} tok/s out, {f['total_tok_per_s']:,.0f} with "
        f"prompts; per GPU {f['output_tok_per_s_per_gpu']:,.1f}; per user "
        f"{_one_digit(f['tok_per_s_per_user'])}",
        f"steps      {f['n_steps']}, {f['batch_mean']:.1f} requests each; MFU {f['mfu']:.1%}, "
        f"MBU {f['mbu']:.1%}; {f['joules_per_output_token']:.3g} J per output token",
        f"KV cache   {f['kv_mean_fraction']:.1%} full, {f['kv_peak_fraction']:.1%} at most; "
        f"{counted(f['n_preemptions'], 'preemption')}; "
        f"{f['prefix_hit_fraction']:.1%} of prompt tokens cached",
    ]


def _one_digit(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def seconds(value: float) -> str:
    """A time with three digits in a unit that suits it."""
    if math.isnan(value):
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= scale or unit == "µs":
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} s"


def histogram(values: Any) -> str:
    """One line of blocks over a logarithmic axis, with its ends."""
    found = values[~np.isnan(values)]
    if not len(found):
        return "-"
    low, high = float(found.min()), float(found.max())
    if low <= 0 or high <= low * 1.001:
        return f"all {seconds(high)}"
    counts, _ = np.histogram(found, bins=np.geomspace(low, high, WIDTH + 1))
    top = counts.max()
    blocks = "".join(BARS[int(np.ceil(8 * count / top))] for count in counts)
    return f"{seconds(low)} {blocks} {seconds(high)}"


def bar(parts: Mapping[str, float]) -> str:
    """One line in proportion to the parts, each named with its share."""
    total = sum(parts.values())
    if total <= 0:
        return "-"
    drawn, named = "", []
    for i, (name, spent) in enumerate(parts.items()):
        share = spent / total
        if share < 0.005:
            continue
        colour = COLOURS[i % len(COLOURS)]
        drawn += f"[{colour}]{'█' * max(1, round(WIDTH * share))}[/{colour}]"
        named.append(f"[{colour}]{name}[/{colour}] {share:.0%}")
    return f"{drawn} {', '.join(named)}"
