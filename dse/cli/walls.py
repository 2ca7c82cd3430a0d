"""`dse walls`: memory, floors and wall order of one deployment."""

from typing import Annotated, Any

from cyclopts import Parameter

from dse.cli._flags import DeploymentFlags, SLOFlags
from dse.cli._output import Json, emit_json

NO_FLAGS, NO_SLO = DeploymentFlags(), SLOFlags()


def walls(
    flags: DeploymentFlags = NO_FLAGS,
    slo: SLOFlags = NO_SLO,
    *,
    context: Annotated[str, Parameter(help="Tokens of each request's context.")] = "8192",
    concurrency: Annotated[int, Parameter(help="Requests in flight.")] = 1,
    min_gpus: Annotated[
        bool, Parameter(negative="", help="Search the fewest GPUs that hold this load.")
    ] = False,
    json: Json = False,
) -> int:
    """Memory, floors and wall order of one deployment.

    Says what fits, how long a step takes at least, which resource binds first as load grows, and
    what one percent of each hardware fact is worth.
    """
    from dse.base.units import CountUnit
    from dse.catalog import Catalog
    from dse.cli._deployment import at_least_one, deployment_of, slo_of

    deployment = deployment_of(flags, Catalog.load())
    asked = {
        "context_tokens": at_least_one(CountUnit().read(context), "--context"),
        "concurrency": at_least_one(concurrency, "--concurrency"),
    }
    found: dict[str, Any]
    if min_gpus:
        from dse.walls.fewest import fewest_gpus

        found = fewest_gpus(deployment, slo=slo_of(slo), **asked)
    else:
        from dse.walls.describe import describe

        found = describe(deployment, slo=slo_of(slo), gpus=flags.gpus, **asked)
    if json:
        emit_json(found)
    else:
        from dse.cli._walls_text import show

        show(found)
    return 0
