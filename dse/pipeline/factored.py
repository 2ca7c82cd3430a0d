"""Facts of the structures of a block: those of each layout once, joined to the rows that use it."""

from __future__ import annotations

import polars as pl

from dse.serving.deployment import Deployment, Role
from dse.space import Block, block_structures
from dse.study import Study
from dse.study.price import Price
from dse.walls.facts import Facts, FactsCache, decode_facts, prefill_facts, room_of

__all__ = [
    "PRICE",
    "block_facts",
    "block_price",
    "layout_facts",
    "layout_keys",
    "layouts_of",
    "legal_rows",
    "refused_rows",
    "replica_column",
]

PRICE = "usd_per_gpu_hour"
DEGREES = ("tp", "dp", "ep", "pp", "cp")
CLUSTER = "cluster"


def refused_rows(block: Block, rows: pl.DataFrame) -> pl.DataFrame:
    """`_row` and `rule` of the rows that no engine can start: the first rule that each breaks."""
    broken = [
        pl.col(f"_{role}").replace_strict(
            dict(enumerate(each[0].rule if each else None for each in block.lattice.reasons)),
            return_dtype=pl.String,
        )
        for role in block.parts.roles
    ]
    unfilled = pl.when(pl.col("n_replicas").is_null()).then(pl.lit(CLUSTER))
    named = rows.select("_row", rule=pl.coalesce(*broken, unfilled))
    return named.filter(pl.col("rule").is_not_null())


def legal_rows(rows: pl.DataFrame, refused: pl.DataFrame) -> pl.DataFrame:
    """The rows that are not refused."""
    return rows.join(refused, on="_row", how="anti", maintain_order="left")


def block_facts(study: Study, block: Block, rows: pl.DataFrame, cache: FactsCache) -> pl.DataFrame:
    """`structure`, every fact of `dse.walls.facts` and the price, for legal rows of a block."""
    roles = block.parts.roles
    wide = rows.select(
        (pl.col("_row").cast(pl.UInt64) + block.offset).alias("structure"),
        *(pl.col(name).alias(f"_{role}_{name}") for role in roles for name in layout_keys(role)),
        *(pl.col(replica_column(role)).cast(pl.Float64).alias(f"_n_{role}") for role in roles),
    )
    for role in roles:
        keys = [f"_{role}_{name}" for name in layout_keys(role)]
        wide = wide.join(layout_facts(block, rows, role, cache), on=keys, how="left")
    found = wide.with_columns(*_joint(block), block_price(study, block).alias(PRICE))
    return found.select(pl.exclude("^_.*$"))


def _joint(block: Block) -> list[pl.Expr]:
    """The facts of all pools together."""
    roles, hardware = block.parts.roles, block.parts.hardware
    room = [pl.col(f"_limit_{role}") - pl.col(f"_needed_{role}") for role in roles]
    is_first = room[0] <= room[-1]

    def least(name: str) -> pl.Expr:
        first, last = pl.col(f"_{name}_{roles[0]}"), pl.col(f"_{name}_{roles[-1]}")
        return pl.when(is_first).then(first).otherwise(last)

    fabrics = [float(hardware[role][1].scale_out.n_gpus) for role in roles]
    found = {
        "n_gpus": pl.sum_horizontal(_gpus(role) for role in roles),
        "n_replicas": pl.col(f"_n_{roles[-1]}"),
        "prefill_n_replicas": pl.col(f"_n_{roles[0]}"),
        "is_disaggregated": pl.lit(float(len(roles) > 1)),
        "max_context_tokens": pl.lit(float(block.parts.model.max_context_tokens)),
        "replica_gpus": pl.max_horizontal(f"_gpus_{role}" for role in roles),
        "fabric_gpus": pl.lit(min(fabrics)),
        "hbm_needed_bytes": least("needed"),
        "hbm_limit_bytes": least("limit"),
    }
    return [each.alias(name) for name, each in found.items()]


def layouts_of(
    block: Block, rows: pl.DataFrame, role: Role
) -> tuple[pl.DataFrame, list[Deployment]]:
    """The first legal row of each layout of a role, and what it deploys."""
    first = rows.unique(layout_keys(role), keep="first", maintain_order=True)
    found = [structure.deployment for structure in block_structures(block, first)]
    return first, [each for each in found if each is not None]


def layout_facts(block: Block, rows: pl.DataFrame, role: Role, cache: FactsCache) -> pl.DataFrame:
    """The facts of each layout of a role, by its degrees, in the order of `layouts_of`."""
    keys = layout_keys(role)
    first, deployments = layouts_of(block, rows, role)
    found: list[Facts] = []
    for deployment in deployments:
        pool = next(each for each in deployment.pools if each.role == role)
        needed, limit = room_of(deployment, pool, cache)
        facts = {
            f"_gpus_{role}": float(pool.layout.n_gpus),
            f"_needed_{role}": needed,
            f"_limit_{role}": limit,
        }
        if role != "prefill":
            facts |= decode_facts(deployment, pool, cache)
        if role != "decode":
            facts |= prefill_facts(deployment, pool, cache)
        found.append(facts)
    degrees = first.select(pl.col(name).alias(f"_{role}_{name}") for name in keys)
    names = sorted({name for facts in found for name in facts})
    columns = [
        pl.Series(name, [facts[name] for facts in found], dtype=pl.Float64) for name in names
    ]
    return degrees.with_columns(columns)


def block_price(study: Study, block: Block) -> pl.Expr:
    """USD per GPU and hour, the mean over the deployment's GPUs, from `_n_<role>` and
    `_gpus_<role>`; null where one has no price.
    """
    spent = []
    for role, (gpu, _, _) in block.parts.hardware.items():
        name = str(block.constants.get(f"{role}_gpu", block.constants["gpu"]))
        price: Price | None = study.price_of(name, gpu)
        if price is None:
            return pl.lit(None, pl.Float64)
        spent.append(price.usd_per_gpu_hour(gpu)[0] * _gpus(role))
    return pl.sum_horizontal(spent) / pl.sum_horizontal(map(_gpus, block.parts.roles))


def _gpus(role: Role) -> pl.Expr:
    return pl.col(f"_n_{role}") * pl.col(f"_gpus_{role}")


def replica_column(role: Role) -> str:
    """The column of rows that counts a role's replicas."""
    return f"{_before(role)}n_replicas"


def _before(role: Role) -> str:
    return "" if role == "both" else f"{role}_"


def layout_keys(role: Role) -> list[str]:
    """The columns of rows that tell layouts of a role apart."""
    return [f"{_before(role)}{name}" for name in DEGREES]
