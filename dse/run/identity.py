"""Who a point is: a digest of everything that `simulate` reads of it, and of nothing else.

Not in it: names, sources and notes of catalog records, SLO, price, objectives, screens. So a price
that changed simulates nothing, and a GPU file that was corrected makes stale only what used it.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from dse.base.digest import canonical, digest
from dse.cost.kernels import Tier, kernel_model
from dse.serving.deployment import Deployment
from dse.sim import SIM_VERSION

# Fields that tell people something and the simulator nothing, in whatever record they stand.
# Fields declared with `compare=False` are left out as well.
UNREAD = frozenset(
    {
        "conflicts",
        "hbm_datasheet_bytes",
        "kernel_table",
        "name",
        "note",
        "notes",
        "published_parameters",
        "source",
        "tags",
        "vendor",
        "version",
    }
)
SIZE_BYTES = 16


def point_id(deployment: Deployment | str, workload: object, load: object = None) -> str:
    """32 hexadecimal digits: blake2b-128 of the deployment's, the workload's and the load's facts.

    A deployment may be given by its `deployment_id`. `workload` is the record that `simulate`
    takes, with its stopping rule; `load` is what is offered, where the workload does not already
    say so (plain data in SI).
    """
    whose = deployment if isinstance(deployment, str) else deployment_id(deployment)
    return digest([whose, digest(facts(workload)), facts(load)], SIZE_BYTES)


def deployment_id(deployment: Deployment) -> str:
    """32 hexadecimal digits of all that the simulator reads of a deployment."""
    return facts_id(deployment_facts(deployment))


def facts_id(text: str) -> str:
    """The `deployment_id` of a canonical text (`deployment_facts`)."""
    return digest(text, SIZE_BYTES)


def deployment_facts(deployment: Deployment) -> str:
    """The canonical text behind `deployment_id`: JSON, sorted, SI."""
    return canonical(facts(deployment))


def physics_id(sim_version: int, coefficients: Sequence[str] = ()) -> str:
    """32 hexadecimal digits of the simulator's version and of what priced a point (digests)."""
    return digest({"sim_version": sim_version, "coefficients": list(coefficients)}, SIZE_BYTES)


def facts(value: object) -> object:
    """Return `value` as plain data: records as mappings of the fields that the simulator reads.

    A part of a family keeps its `kind`, which says what class it is; class names do not count.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: facts(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.compare and field.name not in UNREAD
        }
    if isinstance(value, Mapping):
        return {key: facts(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [facts(item) for item in value]
    if isinstance(value, set | frozenset):
        return frozenset(map(canonical, map(facts, value)))
    return value


def physics_of(deployment: Deployment, tier: Tier = "auto") -> str:
    """The `physics_id` of a deployment: simulator, kernel, collective and host coefficients."""
    from dse.cost.collectives import collective_model

    ids = [
        {
            "kernels": kernel_model(pool.gpu, pool.engine.name, tier).physics_id,
            "collectives": getattr(collective_model(pool.fabric), "physics_id", ""),
            "host": facts(pool.engine.host),
        }
        for pool in deployment.pools
    ]
    return physics_id(SIM_VERSION, [digest(each) for each in ids])


def flat(value: object, path: str = "") -> dict[str, object]:
    """The leaves of `facts` by their dotted path; items of a list by their place."""
    if isinstance(value, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {path: value}
    found: dict[str, object] = {}
    for key, item in pairs:
        found |= flat(item, f"{path}.{key}" if path else key)
    return found
