"""Advice as people read it: the answer, the curve with its knee, uses of the freed KV."""

import math
from collections.abc import Sequence

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from dse.cli._output import console
from dse.saturation.advisor import LADDER, Advice, CapPoint
from dse.serving.deployment import Deployment

BAR_WIDTH = 28
EIGHTHS = " ▏▎▍▌▋▊▉█"
GB = 1e9


def show(advice: Advice, deployment: Deployment) -> None:
    """Print the advice on stdout."""
    out = console()
    out.print(Panel(_answer(advice), title=_title(deployment), expand=False))
    out.print(_curve(advice))
    out.print(_uses(advice))
    out.print(
        Text(
            f"Priced by {advice.priced_by}. Tolerance {advice.tolerance:.0%} of throughput, "
            f"{advice.latency_margin:.0%} margin on latencies; TPOT = (E2E − TTFT) / (OSL − 1), "
            "without queueing.",
            style="dim",
        )
    )


def _title(deployment: Deployment) -> str:
    pool = deployment.pools[0]
    replicas = f"{pool.n_replicas} × " if pool.n_replicas > 1 else ""
    return f"{deployment.model.name} on {replicas}{pool.gpu.name} {pool.layout.label()}"


def _answer(advice: Advice) -> Group:
    share = advice.throughput_tok_per_s / advice.plateau_tok_per_s
    why = {
        "plateau": "beyond this knee a batch adds latency, not throughput",
        "latency": "the largest that keeps the latency bound",
    }[advice.limited_by]
    return Group(
        Text.assemble("max_num_seqs ", (f"{advice.batch_cap:,}", "bold green"), f"   {why}"),
        Text(
            f"{advice.throughput_tok_per_s:,.0f} tok/s, {share:.1%} of the plateau of "
            f"{advice.plateau_tok_per_s:,.0f};  TPOT {_ms(advice.tpot_s)}, request "
            f"{advice.latency_s:.2f} s"
        ),
        Text(
            f"KV per GPU: {advice.kv_bytes_needed / GB:.1f} GB needed of "
            f"{advice.kv_pool_bytes / GB:.1f} GB, {advice.kv_bytes_freed / GB:.1f} GB freed"
        ),
    )


def _curve(advice: Advice) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("cap", justify="right")
    table.add_column("throughput", min_width=BAR_WIDTH)
    for name in ("tok/s", "TPOT", "request", "KV/GPU"):
        table.add_column(name, justify="right")
    table.add_column("", no_wrap=True)
    for point in _rungs(advice):
        chosen = point.batch_cap == advice.batch_cap
        style = "bold green" if chosen else "" if point.meets_slo else "red"
        table.add_row(
            f"{point.batch_cap:,}",
            _bar(point.throughput_tok_per_s / advice.plateau_tok_per_s),
            f"{point.throughput_tok_per_s:,.0f}",
            _ms(point.tpot_s),
            f"{point.latency_s:.2f} s",
            f"{min(point.kv_bytes, advice.kv_pool_bytes) / GB:.1f} GB",
            _remark(point, advice, chosen=chosen),
            style=style,
        )
    return table


def _remark(point: CapPoint, advice: Advice, *, chosen: bool) -> str:
    if chosen:
        return "◀ knee" if advice.limited_by == "plateau" else "◀ SLO"
    if not point.meets_slo:
        return "misses SLO"
    return "pool full" if point.kv_bytes > advice.kv_pool_bytes else ""


def _rungs(advice: Advice) -> Sequence[CapPoint]:
    """The curve at the usual caps and the advised one, up to the first beyond it that the pool does
    not hold.
    """
    shown = {*(cap for cap in LADDER if cap % 3 or cap >= 48), advice.batch_cap}
    points = [point for point in advice.curve if point.batch_cap in shown]
    beyond = [
        i
        for i, point in enumerate(points)
        if point.batch_cap > advice.batch_cap and point.kv_bytes > advice.kv_pool_bytes
    ]
    return points[: beyond[0] + 1] if beyond else points


def _bar(share: float) -> str:
    eighths = round(min(max(share, 0.0), 1.0) * BAR_WIDTH * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (EIGHTHS[rest] if rest else "")


def _uses(advice: Advice) -> Table:
    table = Table(title="What the freed KV could hold", title_justify="left", box=None)
    table.add_column("amount", justify="right", no_wrap=True)
    table.add_column("use")
    for use in advice.uses:
        amount = f"{use.amount:,.0f} {use.unit}" if use.fits else "does not fit"
        table.add_row(amount, Text.assemble(use.what, (f"; {use.note}", "dim")))
    return table


def _ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{1e3 * seconds:.1f} ms"
