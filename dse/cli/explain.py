"""`dse explain`: why a point was killed, or is not on the front."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dse.base.errors import UserError
from dse.cli._flags import DeploymentFlags, SLOFlags, WorkloadFlags
from dse.cli._output import Json, console, emit_json

NO_FLAGS, NO_WORKLOAD, NO_SLO = DeploymentFlags(), WorkloadFlags(), SLOFlags()


def explain(
    point: Annotated[str | None, Parameter(help="A point_id of a store, or its start.")] = None,
    /,
    flags: DeploymentFlags = NO_FLAGS,
    workload: WorkloadFlags = NO_WORKLOAD,
    slo: SLOFlags = NO_SLO,
    *,
    store: Annotated[Path, Parameter(help="The store that knows the point.")] = Path("dse.duckdb"),
    json: Json = False,
) -> int:
    """Why a point was killed, by how much, and the nearest change that would make it feasible.

    The point is one of a store, or the one that the deployment, workload and SLO flags describe.
    """
    if point is not None:
        from dse.cli._stored import stored_verdict

        found = stored_verdict(store, point)
    else:
        if workload.trace is not None:
            raise UserError(
                "--trace: explain reads no trace", "give --isl and --osl of its requests"
            )
        found = _asked(flags, workload, slo)
    if json:
        emit_json(found)
    else:
        _show(found)
    return 0


def _asked(flags: DeploymentFlags, workload: WorkloadFlags, slo: SLOFlags) -> dict[str, Any]:
    from dse.catalog import Catalog
    from dse.cli._deployment import deployment_of, slo_of, split, workload_of
    from dse.walls.explain import Asked, explain

    flags, workload = split(flags, workload)
    deployment = deployment_of(flags, Catalog.load())
    asked = workload_of(workload)
    assert asked.isl is not None
    assert asked.osl is not None
    return explain(
        deployment,
        Asked(
            isl_low_tokens=asked.isl.at(0.0),
            osl_low_tokens=asked.osl.at(0.0),
            osl_high_tokens=asked.osl.at(1.0 - 1e-12),
            concurrency=asked.arrivals.concurrency_limit,
            n_requests=asked.n_requests,
            shared_tokens=asked.shared_prefix_tokens,
            slo=slo_of(slo),
        ),
        gpus=flags.gpus,
    )


def _show(found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    verdict = found["status"]
    if found.get("killed_by"):
        verdict += f" by {found['killed_by']}: {found.get('reason') or ''}"
    out.print(Text(verdict, style="red" if found["status"] == "killed" else "green"))
    if found.get("margin") is not None:
        demand, limit = (_number(found[key], found["unit"]) for key in ("demand", "limit"))
        unit = "" if found["unit"] == "bytes" else f" {found['unit']}"
        out.print(f"needs {demand}{unit}, has {limit}: {found['margin']:+.1%}")
    if found.get("walls"):
        table = Table("wall", "demand", "limit", "unit", "margin", box=None, pad_edge=False)
        for wall in found["walls"]:
            margin = "" if wall["margin"] is None else f"{wall['margin']:+.1%}"
            numbers = (_number(wall[key], wall["unit"]) for key in ("demand", "limit"))
            table.add_row(wall["wall"], *numbers, wall["unit"], margin)
        out.print(table)
    for change in found.get("nearest_feasible") or ():
        out.print(Text(f"  would do: {change}"))


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "bytes":
        return f"{value / 1e9:,.2f} GB"
    return f"{value:,.0f}" if unit in ("tokens", "gpus") else f"{value:,.4g}"
