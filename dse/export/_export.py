"""A deployment as a launch script, and a launch script as a deployment.

The flags say layout, formats and settings; the head of the script says what no flag can: model,
weights, GPU, fabric, engine version, acceptance of drafts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from dse.base.errors import IllegalError
from dse.catalog import Catalog
from dse.export._base import Exporter, Given, Launch
from dse.export._script import Export, read_script
from dse.hardware import DType
from dse.model.ffn import UNIFORM
from dse.run.identity import facts, flat
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import Engine
from dse.serving.routers import RoundRobin
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst
from dse.space.options import speculative_of
from dse.space.precision import precision_of
from dse.walls.describe import describe

__all__ = ["export", "parse"]


def export(
    deployment: Deployment,
    exporter: Exporter,
    catalog: Catalog,
    *,
    context_tokens: int,
    remarks: tuple[str, ...] = (),
) -> Export:
    """The launch of `deployment` under `exporter`'s engine, for requests of `context_tokens`.
    `remarks` on what its values rest on stand in the script.

    A deployment of another engine is taken over with its settings. Raises `IllegalError` where the
    walls say that the engine could not start it, or its flags cannot say it.
    """
    moved, notes = _under(deployment, exporter, catalog)
    verdict = describe(moved, context_tokens=context_tokens)
    if not verdict["legal"]:
        reasons = "; ".join(map(str, verdict["illegal_reasons"]))
        nearest = dict.fromkeys(n for each in verdict["illegal"] for n in each["nearest"])
        remedy = f"legal: {' or '.join(nearest)}" if nearest else "see `dse walls`"
        raise IllegalError(f"{exporter.engine} cannot start this: {reasons}", remedy)
    launches = [
        launch for pool in moved.pools for launch in exporter.launches(moved, pool, context_tokens)
    ]
    found = Export(
        engine=moved.pools[0].engine.label,
        head=_head(moved),
        launches=tuple(launches),
        router=exporter.router(moved),
        warnings=(*notes, *exporter.warnings(moved)),
        remarks=(*remarks, exporter.limit),
    )
    lost = tuple(_lost(moved, parse(found.command, exporter, catalog)))
    return replace(found, warnings=(*found.warnings, *lost))


def parse(script: str, exporter: Exporter, catalog: Catalog) -> Deployment:
    """The deployment that a script of `export` starts; a `UserError` for any other text."""
    head, launches = read_script(script)
    model = catalog.model(head["model"])
    heads = [each for each in launches if each.node == 0]
    given = [exporter.read(each) for each in heads]
    pools = tuple(
        _pool(launch, settings, head, catalog)
        for launch, settings in zip(heads, given, strict=True)
    )
    precision = precision_of(model, pools[-1].gpu, weights=DType(head["weights"]), kv=given[-1].kv)
    return Deployment(
        model=model,
        precision=precision,
        pools=pools,
        speculative=speculative_of(head.get("speculative", "none")),
        interconnect=pools[0].fabric.scale_out if len(pools) > 1 else None,
    )


def _under(
    deployment: Deployment, exporter: Exporter, catalog: Catalog
) -> tuple[Deployment, list[str]]:
    """`deployment` with every pool on a profile of the exporter's engine."""
    notes: list[str] = []
    pools = []
    for pool in deployment.pools:
        engine = pool.engine
        if engine.name != exporter.engine:
            profile = catalog.engine(exporter.engine)
            notes.append(
                f"the point was judged under {engine.label}; {profile.label} may differ in memory "
                "and speed"
            )
            engine = replace(
                profile,
                max_num_batched_tokens=engine.max_num_batched_tokens,
                max_num_seqs=engine.max_num_seqs,
                prefix_caching=engine.prefix_caching,
            )
        pools.append(replace(pool, engine=engine))
    return replace(deployment, pools=tuple(pools)), list(dict.fromkeys(notes))


def _head(deployment: Deployment) -> dict[str, str]:
    head = {"engine": deployment.pools[0].engine.label, "model": deployment.model.name.lower()}
    head["weights"] = deployment.precision.weights.value
    for pool in deployment.pools:
        before = "" if pool.role == "both" else f"{pool.role}_"
        head[f"{before}gpu"] = pool.gpu.name.lower()
        head[f"{before}fabric"] = pool.fabric.name.lower()
    if deployment.speculative is not None:
        spec = deployment.speculative
        head["speculative"] = f"{spec.method}:{spec.n_draft}:{spec.acceptance!r}"
    return head


def _pool(launch: Launch, given: Given, head: Mapping[str, str], catalog: Catalog) -> Pool:
    before = "" if launch.role == "both" else f"{launch.role}_"
    return Pool(
        gpu=catalog.gpu(head[f"{before}gpu"]),
        fabric=catalog.fabric(head[f"{before}fabric"]),
        layout=given.layout,
        engine=_engine(catalog.engine(head["engine"]), given),
        role=launch.role,
        n_replicas=launch.copies,
    )


def _engine(profile: Engine, given: Given) -> Engine:
    kind = getattr(profile.scheduler, "kind", "")
    scheduler = profile.scheduler
    if given.chunked_prefill != (kind == "chunked_prefill"):
        scheduler = ChunkedPrefill() if given.chunked_prefill else PrefillFirst()
    engine = replace(
        profile,
        max_num_batched_tokens=given.max_num_batched_tokens,
        max_num_seqs=given.max_num_seqs,
        hbm_fraction=given.hbm_fraction,
        block_tokens=given.block_tokens,
        prefix_caching=given.prefix_caching,
        scheduler=scheduler,
    )
    if given.exchange is not None:
        engine = replace(engine, exchange=cast("Any", given.exchange))
    if given.hybrid_kv is not None:
        engine = replace(engine, memory=replace(engine.memory, hybrid_kv=given.hybrid_kv))
    return engine


def _lost(asked: Deployment, found: Deployment) -> Iterator[str]:
    """What of a deployment its launch cannot carry: varied facts, a stated KV pool."""
    # Popularity of experts and routing of requests belong to the workload and to the front end.
    bare = replace(asked, routing=UNIFORM, router=RoundRobin())
    wanted, got = (flat(facts(_spelled_out(each))) for each in (bare, found))
    differing = sorted(
        path for path in wanted.keys() | got.keys() if wanted.get(path) != got.get(path)
    )
    if differing:
        yield (
            f"the launch cannot carry {', '.join(differing[:6])}: these differ from the catalog's "
            "facts, and the engine will not have them"
        )


def _spelled_out(deployment: Deployment) -> Deployment:
    """`deployment` with the tensor parallel degree of its experts and their exchange stated."""
    return replace(deployment, pools=tuple(map(_stated, deployment.pools)))


def _stated(pool: Pool) -> Pool:
    engine, exchange = pool.engine, pool.exchange
    if exchange in ("all_gather", "deepep"):
        engine = replace(engine, exchange=exchange)
    return replace(pool, engine=engine, layout=replace(pool.layout, moe_tp=pool.layout.expert_tp))
