"""Why one point is ruled out, by how much, and the smallest change that would let it live."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from dse.cost.memory import rank_memory
from dse.hardware.dtype import DType
from dse.model.precision import Precision
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.legality import check, check_speculative
from dse.serving.slo import SLO
from dse.walls.facts import Facts, FactsCache, facts_of
from dse.walls.judge import LEGALITY, judge, optimistic, standard_walls

SHOWN = 6
MOST_SHARE = 0.98
"""Share of HBM that engines are started with at most; the driver and the kernels need the rest."""
GROWTH = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0)
ACTIVATED = {DType.FP8: DType.FP8, DType.FP8_BLOCK: DType.FP8, DType.NVFP4: DType.NVFP4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a point is asked: lengths from low to high, requests in flight (None: an open loop),
    requests of the run, the prefix they share, and the SLO.
    """

    isl_low_tokens: int
    osl_low_tokens: int
    osl_high_tokens: int
    slo: SLO
    concurrency: int | None = None
    n_requests: int | None = None
    shared_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One thing changed; `rank` orders changes by what they cost: load, flags and formats, then
    GPUs.
    """

    text: str
    rank: tuple[float, float]
    deployment: Deployment
    asked: Asked


def explain(deployment: Deployment, asked: Asked, *, gpus: int | None = None) -> dict[str, Any]:
    """The verdict of the walls on one point, and the nearest changes that make it feasible.

    `status` is `killed` or `survivor`; `margin` is demand ÷ limit − 1. A survivor is not proved
    feasible: only the simulator says so.
    """
    broken = [illegal for pool in deployment.pools for illegal in _broken(deployment, pool, gpus)]
    broken += check_speculative(deployment.model, deployment.speculative)
    if broken:
        return {
            "status": "killed",
            "killed_by": LEGALITY,
            "reason": "; ".join(illegal.reason for illegal in broken),
            "demand": None,
            "limit": None,
            "unit": None,
            "margin": None,
            "walls": [],
            "nearest_feasible": list(dict.fromkeys(n for each in broken for n in each.nearest)),
        }
    judged = judged_points([(deployment, asked)], FactsCache())[0]
    found = _verdict(judged)
    if found["status"] == "killed":
        found["nearest_feasible"] = smallest_changes([(deployment, asked)])[0]
    return found


def smallest_changes(points: Sequence[tuple[Deployment, Asked]]) -> list[list[str]]:
    """Of each point, the single changes after which no wall kills it, the cheapest first.

    The points are of one study: what one of them is asked (a load, an SLO), all are.
    """
    cache = FactsCache()
    changes = [
        [*_changes(deployment, asked, judged)]
        for (deployment, asked), judged in zip(points, judged_points(points, cache), strict=True)
    ]
    tried = [(each.deployment, each.asked) for group in changes for each in group]
    verdicts = iter(judged_points(tried, cache))
    found = []
    for group in changes:
        alive = [each for each in group if next(verdicts)["killed_by"] is None]
        kinds: dict[str, _Change] = {}
        for change in sorted(alive, key=lambda each: each.rank):
            kinds.setdefault(change.text.split("=")[0], change)
        found.append([change.text for change in list(kinds.values())[:SHOWN]])
    return found


def _changes(deployment: Deployment, asked: Asked, judged: dict[str, Any]) -> Iterator[_Change]:
    """Every single change that is tried on a point with these demands and limits."""
    yield from _exact(deployment, asked, judged)
    yield from _gentler(deployment, asked)
    yield from _shares(deployment, asked)
    yield from _formats(deployment, asked)
    yield from _layouts(deployment, asked)
    yield from _hardware(deployment, asked)


def _broken(deployment: Deployment, pool: Any, gpus: int | None) -> Any:
    total = gpus if len(deployment.pools) == 1 else None
    return check(
        deployment.model,
        deployment.precision,
        pool.layout,
        pool.engine,
        pool.gpu,
        fabric=pool.fabric,
        n_gpus=total,
    )


def judged_points(
    points: Sequence[tuple[Deployment, Asked]], cache: FactsCache
) -> list[dict[str, Any]]:
    """Each point's facts, optimistic vector, demands, limits and `killed_by`, in order."""
    if not points:
        return []
    rows = [facts_of(deployment, cache) | _question(asked) for deployment, asked in points]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.Float64()))
    return judge(optimistic(frame.lazy())).collect().to_dicts()


def _question(asked: Asked) -> Facts:
    """What a point is asked as columns of the walls; see `question_columns`."""
    found = {
        "isl_low_tokens": asked.isl_low_tokens,
        "osl_low_tokens": asked.osl_low_tokens,
        "osl_high_tokens": asked.osl_high_tokens,
        "shared_tokens": asked.shared_tokens,
        "slo_tpot_s": asked.slo.tpot_s,
        "slo_ttft_s": asked.slo.ttft_s,
        "slo_attainment": asked.slo.attainment,
        "n_requests": asked.n_requests,
        "concurrency": asked.concurrency,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _verdict(row: dict[str, Any]) -> dict[str, Any]:
    walls = [
        {
            "wall": wall.kind,
            "demand": row[wall.demand_column],
            "limit": row[wall.limit_column],
            "unit": wall.unit,
            "margin": row[wall.demand_column] / row[wall.limit_column] - 1.0
            if row[wall.limit_column]
            else None,
        }
        for wall in standard_walls()
        if wall.demand_column in row
    ]
    killer = next((each for each in walls if each["wall"] == row["killed_by"]), None)
    says = {wall.kind: wall.says for wall in standard_walls()}
    empty = dict.fromkeys(("demand", "limit", "unit", "margin"))
    shown = empty if killer is None else {key: killer[key] for key in empty}
    return {
        "status": "survivor" if killer is None else "killed",
        "killed_by": row["killed_by"],
        "reason": says.get(row["killed_by"] or "", ""),
        **shown,
        "walls": walls,
        "nearest_feasible": [],
    }


def _exact(deployment: Deployment, asked: Asked, judged: dict[str, Any]) -> Iterator[_Change]:
    """Just as much more as the walls that this point breaks ask for."""
    for wall in standard_walls():
        demand, limit = judged.get(wall.demand_column), judged.get(wall.limit_column)
        if demand is None or limit is None or demand <= limit:
            continue
        if wall.kind in ("tpot_floor", "ttft_floor"):
            name = f"{wall.kind.removesuffix('_floor')}_s"
            changed = replace(asked, slo=replace(asked.slo, **{name: _up(demand)}))
            text = f"slo_{name}={_up(demand):.4g}"
            yield _of(text, 2, demand / limit, deployment, changed)
        elif wall.unit == "tokens" and (isl := int(asked.isl_low_tokens + limit - demand)) >= 1:
            changed = replace(asked, isl_low_tokens=isl)
            text = f"context={isl}/{asked.osl_high_tokens}"
            yield _of(text, 1, 1 - isl / asked.isl_low_tokens, deployment, changed)
        if wall.kind in ("hbm", "kv_capacity"):
            yield _with_hbm(deployment, asked)


def _with_hbm(deployment: Deployment, asked: Asked) -> _Change:
    """GPUs whose memory just holds the weights, the overheads and the KV of one request."""
    context = asked.isl_low_tokens + asked.osl_low_tokens

    def enough(pool: Pool) -> float:
        memory = rank_memory(deployment, pool)
        lack = max(0.0, memory.request_bytes(context) - memory.kv_pool_bytes)
        return _up(pool.gpu.hbm_bytes + lack / (pool.engine.hbm_fraction or 1.0))

    pools = tuple(
        replace(pool, gpu=replace(pool.gpu, hbm_bytes=enough(pool))) for pool in deployment.pools
    )
    more = pools[-1].gpu.hbm_bytes
    factor = more / deployment.pools[-1].gpu.hbm_bytes
    return _of(f"gpu.hbm={more:.4g}", 6, factor, replace(deployment, pools=pools), asked)


def _up(value: float) -> float:
    """`value` with four digits, rounded up so that what needs it has it."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return math.ceil(value / digit) * digit


def _gentler(deployment: Deployment, asked: Asked) -> Iterator[_Change]:
    """Less load, shorter requests, or a looser SLO."""
    for share in (0.9, 0.75, 0.5, 0.25, 0.1):
        if asked.concurrency is not None and asked.concurrency > 1:
            fewer = max(1, int(asked.concurrency * share))
            changed = replace(asked, concurrency=fewer)
            yield _of(f"concurrency={fewer}", 0, 1 - share, deployment, changed)
        isl, osl = int(asked.isl_low_tokens * share), int(asked.osl_low_tokens * share)
        if isl >= 1 and osl >= 1:
            changed = replace(asked, isl_low_tokens=isl, osl_low_tokens=osl, osl_high_tokens=osl)
            yield _of(f"context={isl}/{osl}", 1, 1 - share, deployment, changed)
    for factor in GROWTH:
        for name in ("tpot_s", "ttft_s"):
            bound = getattr(asked.slo, name)
            if bound is not None:
                slo = replace(asked.slo, **{name: bound * factor})
                text = f"slo_{name}={bound * factor:.4g}"
                yield _of(text, 2, factor, deployment, replace(asked, slo=slo))


def _shares(deployment: Deployment, asked: Asked) -> Iterator[_Change]:
    """More of the same memory for KV: a larger stated pool, or a larger share of HBM."""
    context = asked.isl_low_tokens + asked.osl_low_tokens
    parts = [(pool, rank_memory(deployment, pool)) for pool in deployment.pools]
    need = max(memory.request_bytes(context) for _, memory in parts)
    stated = deployment.kv_pool_bytes
    if stated is not None:
        room = min(p.gpu.hbm_bytes - sum(m.weights.values()) for p, m in parts)
        if stated < need <= room:
            changed = replace(deployment, kv_pool_bytes=_up(need))
            yield _of(f"kv_pool={_up(need):.4g}", 2.5, need / stated, changed, asked)
        return
    lacks = [
        max(0.0, m.request_bytes(context) - m.kv_pool_bytes) / p.gpu.hbm_bytes for p, m in parts
    ]
    share = max(p.engine.hbm_fraction + lack for (p, _), lack in zip(parts, lacks, strict=True))
    share = math.ceil(share * 1000) / 1000
    if any(lacks) and share <= MOST_SHARE:
        pools = tuple(
            replace(p, engine=replace(p.engine, hbm_fraction=max(share, p.engine.hbm_fraction)))
            for p in deployment.pools
        )
        text = f"hbm_fraction={share:g}"
        yield _of(text, 2.5, share, replace(deployment, pools=pools), asked)


def _formats(deployment: Deployment, asked: Asked) -> Iterator[_Change]:
    """Smaller KV or weights, where the GPU computes on them."""
    gpu, now = deployment.pool("decode").gpu, deployment.precision
    if now.kv.bytes_per_element > 1:
        smaller = replace(deployment, precision=replace(now, kv=DType.FP8))
        yield _of("kv=fp8", 3, 0, smaller, asked)
    for dtype, activations in ACTIVATED.items():
        if gpu.supports(dtype) and dtype.bytes_per_element < now.weights.bytes_per_element:
            stored: Precision = replace(now, weights=dtype, activations=activations)
            smaller = replace(deployment, precision=stored)
            if not _illegal(smaller):
                yield _of(f"weights={dtype.value}", 3, 1, smaller, asked)


def _layouts(deployment: Deployment, asked: Asked) -> Iterator[_Change]:
    """Another layout on as many GPUs, or a wider replica on more."""
    if len(deployment.pools) > 1:
        return
    pool = deployment.pools[0]
    for layout in _neighbours(pool.layout, deployment.model.is_moe):
        total = max(deployment.n_gpus, layout.n_gpus)
        placed = replace(pool, layout=layout, n_replicas=max(1, total // layout.n_gpus))
        changed = replace(deployment, pools=(placed,))
        if _illegal(changed):
            continue
        more = changed.n_gpus - deployment.n_gpus
        text = f"layout={layout.label()}" if more <= 0 else f"gpus={changed.n_gpus}"
        text += "" if more <= 0 else f" ({layout.label()})"
        yield _of(text, 4 if more <= 0 else 5, float(more), changed, asked)


def _neighbours(layout: Layout, is_moe: bool) -> Iterator[Layout]:
    degrees = (1, 2, 4, 8, 16, 32, 64)
    for tp in degrees:
        for dp in degrees if is_moe else (1,):
            for pp in (1, 2, 4, 8):
                if tp * dp * pp > 8 * layout.n_gpus:
                    continue
                yield Layout(tp=tp, dp=dp, pp=pp)
                if is_moe and tp * dp > 1:
                    yield Layout(tp=tp, dp=dp, pp=pp, ep=tp * dp)


def _hardware(deployment: Deployment, asked: Asked) -> Iterator[_Change]:
    """What the GPU would have to be: more memory, or more bandwidth."""
    for factor in GROWTH:
        for name, word in (("hbm_bytes", "gpu.hbm"), ("hbm_bytes_per_s", "gpu.hbm_bandwidth")):
            pools = tuple(
                replace(p, gpu=replace(p.gpu, **{name: getattr(p.gpu, name) * factor}))
                for p in deployment.pools
            )
            value = getattr(pools[-1].gpu, name)
            changed = replace(deployment, pools=pools)
            yield _of(f"{word}={value:.4g}", 6, factor, changed, asked)


def _illegal(deployment: Deployment) -> bool:
    pool = deployment.pools[0]
    return bool(
        check(
            deployment.model,
            deployment.precision,
            pool.layout,
            pool.engine,
            pool.gpu,
            fabric=pool.fabric,
            suggest=False,
        )
    )


def _of(text: str, kind: float, cost: float, deployment: Deployment, asked: Asked) -> _Change:
    return _Change(text=text, rank=(kind, cost), deployment=deployment, asked=asked)
