"""`dse export`: the launch command of a point for a serving engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dse.base.errors import UserError, did_you_mean
from dse.cli._flags import DeploymentFlags
from dse.cli._output import Json, emit_json

if TYPE_CHECKING:
    from dse.export import Export, Longest
    from dse.serving.deployment import Deployment

NO_FLAGS = DeploymentFlags()
DEGREES = ("tp", "dp", "ep", "pp", "cp")


def export(
    point: Annotated[str | None, Parameter(help="A point_id of a store, or its start.")] = None,
    /,
    flags: DeploymentFlags = NO_FLAGS,
    *,
    store: Annotated[Path, Parameter(help="The store that knows the point.")] = Path("dse.duckdb"),
    context: Annotated[
        str | None,
        Parameter(
            help="Tokens of the longest request; missing: a point's longest and a tenth, or 8Ki."
        ),
    ] = None,
    json: Json = False,
) -> int:
    """The launch command and flags of a deployment for vLLM, SGLang or TensorRT-LLM.

    The deployment is a point of a store, or the one that the flags describe; `--engine` is the one
    that it is written for. A stored point is launched with its batch as the limit of running
    requests, and with room beyond its longest request; the script says both. Refused where the
    walls say that the engine could not start it.
    """
    from dse.base.units import CountUnit
    from dse.catalog import Catalog
    from dse.cli._deployment import deployment_of, require_legal
    from dse.export import EXPORTERS, Longest, export

    catalog = Catalog.load()
    notes: list[str] = []
    remarks: list[str] = []
    asked = Longest(tokens=8192, why="length: 8,192 tokens; --context sets another")
    if point is not None:
        deployment, asked, remarks, notes = _stored(store, point, catalog)
    else:
        deployment = deployment_of(flags, catalog)
        require_legal(deployment, flags.gpus)
    name = flags.engine or deployment.pools[0].engine.name
    kind = name.partition("@")[0].lower()
    if kind not in EXPORTERS:
        hint = did_you_mean(kind, EXPORTERS)
        raise UserError(
            f"nothing is exported for {name!r}{hint}", f"--engine {', '.join(EXPORTERS)}"
        )
    if context is not None:
        tokens = CountUnit().read(context)
        asked = Longest(tokens=tokens, why=f"length: {tokens:,} tokens, as --context says")
    found = export(
        deployment,
        EXPORTERS[kind](),
        catalog,
        context_tokens=asked.tokens,
        remarks=(*remarks, asked.why),
    )
    _tell(found, notes, json=json)
    return 0


def flags_of(row: Mapping[str, Any]) -> DeploymentFlags:
    """The flags that describe the deployment of a stored point."""
    apart = row.get("prefill_tp") is not None
    names = ("model", "gpu", "engine", "weights", "kv", "fabric", "speculative", "routing")
    given: dict[str, Any] = {name: row.get(name) for name in names}
    given["set_"] = tuple(
        f"{name}={value}" for name, value in row.items() if "." in name and value is not None
    )
    if not apart:
        return DeploymentFlags(**given, gpus=row["n_gpus"], layout=_layout(row, ""))
    for role in ("prefill", "decode"):
        layout = _layout(row, f"{role}_")
        ranks = [row.get(f"{role}_{name}") or 1 for name in ("tp", "dp", "pp")]
        gpus = row[f"{role}_n_replicas"] * ranks[0] * ranks[1] * ranks[2]
        own = [
            f"{name}={row[f'{role}_{name}']}"
            for name in ("gpu", "fabric", "engine")
            if row.get(f"{role}_{name}")
        ]
        given[role] = " ".join([f"gpus={gpus}", f"layout={layout}", *own])
    return DeploymentFlags(**given)


def _layout(row: Mapping[str, Any], before: str) -> str:
    degrees = {name: row.get(f"{before}{name}") for name in DEGREES}
    return ",".join(f"{name}={value}" for name, value in degrees.items() if value)


def _stored(
    store: Path, point: str, catalog: Any
) -> "tuple[Deployment, Longest, list[str], list[str]]":
    """The deployment of a stored point with its batch, its longest request, remarks and notes."""
    from dse.cli._deployment import deployment_of
    from dse.export import longest, with_batch
    from dse.run.identity import deployment_id
    from dse.store import Store

    if not store.exists():
        raise UserError(f"no store {store}", "name it with --store, or describe the point by flags")
    wanted = point.lower()
    if not wanted or set(wanted) - set("0123456789abcdef"):
        raise UserError(f"{point!r} is no point_id", "ids are hexadecimal; `dse query` lists them")
    opened = Store.open(store)
    rows = opened.query(f"SELECT * FROM point WHERE starts_with(point_id, '{wanted}')")
    if rows.height != 1:
        what = "no point" if not rows.height else f"{rows.height} points"
        raise UserError(f"{store} has {what} {point!r}", "`dse query 'FROM front'` lists point_id")
    row = rows.row(0, named=True)
    deployment = deployment_of(flags_of(row), catalog)
    notes = []
    if deployment_id(deployment) != row["deployment_id"]:
        notes.append("the catalog or the study's own roots differ from what the point was run with")
    studies = opened.query(
        "SELECT study.text FROM answer JOIN run USING (run_id) JOIN study USING (study_id) "
        f"WHERE answer.point_id = '{row['point_id']}' ORDER BY run.started_at DESC LIMIT 1"
    )
    text = studies.item() if studies.height else None
    capped, remark = with_batch(deployment, row)
    return capped, longest(row, text, capped), [remark], notes


def _tell(found: "Export", notes: list[str], *, json: bool) -> None:
    import sys

    warnings = [*notes, *found.warnings]
    if json:
        processes = [
            {
                "role": each.role,
                "node": each.node,
                "n_nodes": each.n_nodes,
                "copies": each.copies,
                "argv": list(each.argv),
                "files": dict(each.files),
            }
            for each in found.launches
        ]
        emit_json(
            {
                "engine": found.engine,
                "command": found.command,
                "flags": found.flags,
                "env": found.env,
                "warnings": warnings,
                "processes": processes,
                "router": list(found.router or ()),
            }
        )
        return
    sys.stdout.write(found.command)
    for name, why in found.env.items():
        sys.stderr.write(f"set {name}: {why}\n")
    for warning in warnings:
        sys.stderr.write(f"note: {warning}\n")
