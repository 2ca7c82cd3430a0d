"""`dse triage`: a measured step against its floor interval."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dse.base.errors import UserError
from dse.cli._flags import DeploymentFlags
from dse.cli._output import Json, console, emit_json

if TYPE_CHECKING:
    from dse.evidence.triage import Triage

NO_FLAGS = DeploymentFlags()
SHOWN_TERMS = 8


def triage(
    flags: DeploymentFlags = NO_FLAGS,
    *,
    measured_tpot: Annotated[str | None, Parameter(help="Measured TPOT, as 45ms.")] = None,
    measured_ttft: Annotated[
        str | None, Parameter(help="Measured TTFT of a prompt alone, as 800ms.")
    ] = None,
    context: Annotated[str, Parameter(help="Tokens of each request's context.")] = "8192",
    concurrency: Annotated[int, Parameter(help="Requests in flight in the deployment.")] = 1,
    rows: Annotated[
        Path | None, Parameter(help="Batch mode: a CSV of measured rows, one verdict each.")
    ] = None,
    out: Annotated[Path | None, Parameter(help="Where batch mode writes its verdicts.")] = None,
    json: Json = False,
) -> int:
    """What a measured TPOT or TTFT says before a profiler is opened.

    Gives the residual over the floor, the position between the floors, MBU and MFU, a budget of the
    step's time, and the next question to ask.
    """
    if rows is not None:
        from dse.evidence.triage_rows import triage_rows

        summary = triage_rows(rows, out)
        if json:
            emit_json(summary)
        else:
            _show_rows(summary)
        return 0
    found = _one(flags, measured_tpot, measured_ttft, context, concurrency)
    if json:
        emit_json(asdict(found))
    else:
        _show(found)
    return 0


def _one(
    flags: DeploymentFlags, tpot: str | None, ttft: str | None, context: str, concurrency: int
) -> "Triage":
    from dse.base.units import UNITS, CountUnit, parse
    from dse.catalog import Catalog
    from dse.cli._deployment import deployment_of, require_legal
    from dse.evidence.triage import triage as diagnose

    if (tpot is None) == (ttft is None):
        raise UserError("one measurement is needed", "--measured-tpot 45ms or --measured-ttft 1s")
    if concurrency < 1:
        raise UserError(f"--concurrency is {concurrency}", "one request or more")
    deployment = deployment_of(flags, Catalog.load())
    require_legal(deployment, flags.gpus)
    replicas = deployment.pool("decode").n_replicas
    return diagnose(
        deployment,
        parse(tpot or ttft or "", UNITS["s"]),
        phase="decode" if tpot is not None else "prefill",
        n_requests=max(1.0, concurrency / replicas),
        context_tokens=CountUnit().read(context),
    )


def _show(found: "Triage") -> None:
    from rich.table import Table
    from rich.text import Text

    from dse.base.units import UNITS, show

    out, second = console(), UNITS["s"]
    colours = {"inside": "green", "residual": "yellow", "escalate": "red", "below_floor": "red"}
    out.print(Text(found.verdict.replace("_", " "), style=f"bold {colours[found.verdict]}"))
    out.print(
        f"measured {show(found.measured_s, second)} in a {found.phase} step; "
        f"floor {show(found.t_opt_s, second)} to {show(found.t_sum_s, second)}"
    )
    quality = "" if found.overlap_quality is None else f", overlap {found.overlap_quality:.0%}"
    out.print(f"residual {found.residual:.2f} x floor, position {found.position:.2f}{quality}")
    out.print(f"MBU {found.mbu:.0%}, MFU {found.mfu:.0%} ({found.band}); {found.binding} binds")
    table = Table("resource", "term", "time", "share", box=None, pad_edge=False)
    for line in [*found.budget[:SHOWN_TERMS], found.budget[-1]]:
        bar = "█" * max(0, round(20 * min(1.0, line.share)))
        table.add_row(
            line.resource, line.name, show(line.seconds, second), f"{line.share:6.1%} {bar}"
        )
    out.print(table)
    out.print(Text(f"Next: {found.question}"))
    limits = found.thresholds
    out.print(Text(f"Profiler above {limits.escalate} x floor ({limits.source})", style="dim"))


def _show_rows(summary: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("verdict", "rows", box=None, pad_edge=False)
    for verdict, count in summary["verdicts"].items():
        table.add_row(verdict, str(count))
    for reason, count in summary["n_skipped"].items():
        table.add_row(f"skipped: {reason}", str(count))
    console().print(table)
