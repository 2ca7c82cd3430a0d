"""`dse advise`: the batch cap of a deployment, and the KV that it frees."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dse.base.errors import UserError
from dse.cli._flags import DeploymentFlags, SLOFlags, WorkloadFlags
from dse.cli._output import Json, emit_json

NO_FLAGS, NO_LOAD, NO_SLO = DeploymentFlags(), WorkloadFlags(), SLOFlags()


def advise(
    flags: DeploymentFlags = NO_FLAGS,
    workload: WorkloadFlags = NO_LOAD,
    slo: SLOFlags = NO_SLO,
    *,
    slo_e2e: Annotated[str | None, Parameter(help="Whole request, as 10s.")] = None,
    tolerance: Annotated[
        str, Parameter(help="Share of the best throughput that the cap may give up.")
    ] = "5%",
    fit: Annotated[
        Path | None,
        Parameter(help="Constants of `dse calibrate saturation`; missing: what ships, if it fits."),
    ] = None,
    json: Json = False,
) -> int:
    """The batch cap (`max_num_seqs`) of a deployment, and the KV that it frees.

    Throughput plateaus once decode attention saturates HBM; a cap at the knee keeps the throughput,
    bounds the latency, and gives KV memory back.
    """
    from dse.catalog import Catalog
    from dse.cli._deployment import deployment_of, require_legal, split

    flags, workload = split(flags, workload)
    _refuse_loads(workload)
    deployment = deployment_of(flags, Catalog.load())
    require_legal(deployment, flags.gpus)
    found = _advice(deployment, workload, slo, (slo_e2e, tolerance), fit)
    if json:
        emit_json(_document(found))
    else:
        from dse.cli._advise_text import show

        show(found, deployment)
    return 0


def _refuse_loads(workload: WorkloadFlags) -> None:
    """Every cap is kept full with requests of `--isl` and `--osl`: no other load has a meaning."""
    for name in ("concurrency", "rate", "trace", "requests"):
        if getattr(workload, name) is not None:
            raise UserError(
                f"dse advise takes no --{name}: every cap is kept full", "give --isl and --osl"
            )


def _advice(
    deployment: Any,
    workload: WorkloadFlags,
    slo: SLOFlags,
    texts: tuple[str | None, str],
    fit: Path | None,
) -> Any:
    from dataclasses import replace

    from dse.base.units import UNITS, ShareUnit, parse
    from dse.cli._deployment import slo_of, workload_of
    from dse.saturation.advisor import advise as advise_cap
    from dse.saturation.constants import read_fit, shipped_fit
    from dse.saturation.demand import load_of

    e2e, tolerance = texts
    pool = deployment.pool("decode")
    known = read_fit(fit) if fit else shipped_fit(pool.gpu.name, pool.engine.label)
    bounds = replace(slo_of(slo), e2e_s=None if e2e is None else parse(e2e, UNITS["s"]))
    if bounds.e2e_s == 0:
        raise UserError("--slo-e2e of 0 s", "nothing keeps it: give more")
    load = load_of(workload_of(workload), 1.0, prefix_caching=pool.engine.prefix_caching)
    share = ShareUnit(1.0).read(tolerance if "%" in tolerance else float(tolerance))
    return advise_cap(deployment, load, bounds, share, fit=known)


def _document(found: Any) -> dict[str, Any]:
    document = asdict(found)
    document["curve"] = [point._asdict() for point in found.curve]
    return document
