"""The procurement view: GPUs side by side at the same SLO and at the same interactivity."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from dse.base.errors import CatalogError
from dse.report.fleet import gpus_for, housed
from dse.report.quantities import number
from dse.report.record import Outcome
from dse.report.section import Figure, Part, Rows, Section
from dse.report.subject import Subject
from dse.report.tables import Table, distinct, table
from dse.study import Price, Quoted

__all__ = [
    "Side",
    "equal_interactivity",
    "equal_slo",
    "goodput_or_output",
    "prices_of",
    "procurement",
    "staircase",
    "with_costs",
]

SECONDS_PER_HOUR = 3600.0
INTERACTIVITIES = (20.0, 50.0, 100.0)
_LOADS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What stands side by side: the values of `column`, one set of rows for each precision."""

    column: str
    keys: tuple[str, ...]


def procurement(outcome: Outcome, about: Subject) -> Part | None:
    """Costs, energy and GPUs needed of the best point of each GPU; None where no price is known."""
    side = _side(outcome)
    same = equal_slo(outcome, about, side)
    if same.is_empty() or "usd_per_mtok_output" not in same.columns:
        return None
    prices = prices_of(outcome, same)
    charts, datasets = _figures(outcome, same, about, side)
    section = Section(
        name="procurement",
        title="What to buy",
        lines=tuple(_lines(same, about, side)),
        charts=tuple(charts),
        lead=(_same_table(same, about, side),),
        tables=(
            _interactivity_table(equal_interactivity(outcome.results, side), side),
            _price_table(prices),
        ),
    )
    return Part(section=section, datasets=datasets)


def equal_slo(outcome: Outcome, about: Subject, side: Side) -> pl.DataFrame:
    """Per side, the feasible row of the highest goodput (output rate where there is none) per GPU,
    with its costs per million tokens, tokens per joule, break-even price, and for the target
    `gpus_needed` and `housed`.
    """
    rows = outcome.results.filter(pl.col("feasible").fill_null(value=False))
    best = _best(rows, goodput_or_output(rows), side)
    priced = with_costs(best)
    if "usd_per_mtok_output" in priced.columns:
        priced = _with_break_even(priced).sort("usd_per_mtok_output", nulls_last=True)
    if about.target_req_per_s is None:
        return priced
    target = about.target_req_per_s
    needed = [gpus_for(row, target) for row in priced.iter_rows(named=True)]
    catalog = outcome.study.catalog
    homes = [
        None if n is None else housed(row, n, catalog)
        for row, n in zip(priced.iter_rows(named=True), needed, strict=True)
    ]
    return priced.with_columns(
        gpus_needed=pl.Series(needed, dtype=pl.Int64), housed=pl.Series(homes, dtype=pl.String)
    )


def equal_interactivity(results: pl.DataFrame, side: Side) -> pl.DataFrame:
    """Per side and interactivity, the best row whose users see at least that many tokens/s.

    Simulated points only, none interpolated; TTFT and SLO are not asked for.
    """
    needed = {"tok_per_s_per_user", "output_tok_per_s_per_gpu"}
    if not needed <= set(results.columns):
        return pl.DataFrame()
    found = []
    for least in INTERACTIVITIES:
        rows = results.filter(pl.col("tok_per_s_per_user") >= least)
        best = _best(rows, "output_tok_per_s_per_gpu", side)
        found.append(with_costs(best).with_columns(at_least_tok_per_s=pl.lit(least)))
    return pl.concat(found, how="diagonal_relaxed")


def staircase(results: pl.DataFrame, side: Side) -> pl.DataFrame:
    """Per side, the rows that no other beats in both interactivity and output per GPU."""
    x, y = "tok_per_s_per_user", "output_tok_per_s_per_gpu"
    if not {x, y} <= set(results.columns):
        return pl.DataFrame()
    columns = ["point_id", *side.keys, "layout", x, y, "usd_per_mtok_output"]
    narrow = results.select(c for c in results.columns if c in {*columns, "usd_per_gpu_hour"})
    rows = narrow.filter(pl.col(x).is_finite() & pl.col(y).is_finite() & (pl.col(x) > 0))
    ordered = with_costs(rows).sort(x, y, descending=True, maintain_order=True)
    before = pl.col(y).shift(1).cum_max().over(side.keys).fill_null(-1.0)
    kept = ordered.filter(pl.col(y) > before).sort(*side.keys, x, maintain_order=True)
    return kept.select([name for name in columns if name in kept.columns])


def with_costs(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with USD per million input, output and all tokens, and output tokens per joule."""
    added = []
    if "usd_per_gpu_hour" in rows.columns:
        price = pl.col("usd_per_gpu_hour") * 1e6 / SECONDS_PER_HOUR
        output, every = pl.col("output_tok_per_s_per_gpu"), pl.col("total_tok_per_s_per_gpu")
        added.append((price / output).alias("usd_per_mtok_output"))
        if "total_tok_per_s_per_gpu" in rows.columns:
            added.append((price / (every - output)).alias("usd_per_mtok_input"))
            added.append((price / every).alias("usd_per_mtok_total"))
    if "joules_per_output_token" in rows.columns:
        added.append((1.0 / pl.col("joules_per_output_token")).alias("tok_per_joule"))
    return rows.with_columns(added)


def _side(outcome: Outcome) -> Side:
    column = outcome.study.compare_by or "gpu"
    if column not in outcome.results.columns:
        column = "gpu"
    return Side(column=column, keys=tuple(dict.fromkeys((column, "precision"))))


def goodput_or_output(rows: pl.DataFrame) -> str:
    """The column by which a GPU is at its best: goodput per GPU, or output where there is none."""
    goodput = "goodput_req_per_s_per_gpu"
    return goodput if goodput in rows.columns else "output_tok_per_s_per_gpu"


def _best(rows: pl.DataFrame, by: str, side: Side) -> pl.DataFrame:
    # Sorted without the columns that no one compares, as there may be a million rows.
    named = rows.select(*{by, *side.keys}).with_row_index("_row")
    ordered = named.filter(pl.col(by).is_finite()).sort(by, descending=True, maintain_order=True)
    return rows[ordered.unique(side.keys, keep="first", maintain_order=True)["_row"]]


def _with_break_even(rows: pl.DataFrame) -> pl.DataFrame:
    """The price at which each costs what the cheapest other costs per output token; a GPU in
    another format is no other where there are several GPUs, as it has the same price.
    """
    costs = list(rows.select("gpu", "usd_per_mtok_output").iter_rows())
    several = rows["gpu"].n_unique() > 1
    found = []
    for index, row in enumerate(rows.iter_rows(named=True)):
        others = [
            cost
            for i, (gpu, cost) in enumerate(costs)
            if i != index and cost is not None and not (several and gpu == row["gpu"])
        ]
        rate = row["output_tok_per_s_per_gpu"] * SECONDS_PER_HOUR / 1e6
        found.append(min(others) * rate if others else None)
    return rows.with_columns(break_even_usd_per_gpu_hour=pl.Series(found, dtype=pl.Float64))


def prices_of(outcome: Outcome, same: pl.DataFrame) -> list[tuple[str, tuple[float, ...], str]]:
    """Every GPU with its prices (the first decides) and where they stand."""
    study = outcome.study
    found = []
    for name in dict.fromkeys(same["gpu"].drop_nulls()):
        try:
            gpu = study.catalog.gpu(name)
            price = study.price_of(name, gpu)
        except CatalogError:  # prefill and decode on two GPUs go by both names
            continue
        if price is not None:
            found.append((name, price.usd_per_gpu_hour(gpu), _source(price)))
    return found


def _source(price: Price) -> str:
    """Where a price stands; for an owned GPU what it is made of."""
    if isinstance(price, Quoted):
        return price.source
    return (
        f"owned: {price.capex_usd:,.0f} USD over {price.years:g} years at "
        f"{100 * price.utilisation:g}% use, energy {price.energy_usd_per_kwh:g} USD/kWh, PUE "
        f"{price.pue:g} ({price.source})"
    )


def _figures(
    outcome: Outcome, same: pl.DataFrame, about: Subject, side: Side
) -> tuple[list[Figure], dict[str, Rows]]:
    from dse.report.charts import procurement as charts
    from dse.report.charts.theme import spec_of

    names = distinct(outcome.results[side.column])
    formats = distinct(outcome.results["precision"])
    figures: list[Figure] = []
    datasets: dict[str, Rows] = {}
    stairs = staircase(outcome.results, side)
    if stairs.height:
        figures.append(
            Figure(
                name="interactivity",
                title="At equal interactivity",
                spec=spec_of(charts.interactivity, side.column, names, formats),
                alt="Best output per GPU against the tokens per second that a user sees.",
                caption="The best simulated point that gives every user at least so many tokens "
                "per second; nothing is interpolated, and no TTFT is asked for.",
            )
        )
        datasets["interactivity"] = stairs.to_dicts()
    if about.target_req_per_s is not None:
        figures.append(
            Figure(
                name="fleet",
                title="GPUs for a load",
                spec=spec_of(charts.fleet, side.column, names, formats),
                alt="GPUs needed against the load, a line a GPU.",
                caption="Whole replicas, at the goodput of the best point of each GPU.",
            )
        )
        datasets["fleet"] = _fleet(same, about.target_req_per_s, side)
    return figures, datasets


def _fleet(same: pl.DataFrame, target: float, side: Side) -> Rows:
    return [
        {
            **{name: row[name] for name in side.keys},
            "target_req_per_s": target * factor,
            "gpus_needed": gpus_for(row, target * factor),
        }
        for row in same.iter_rows(named=True)
        for factor in _LOADS
    ]


def _lines(same: pl.DataFrame, about: Subject, side: Side) -> Iterable[str]:
    best = same.row(0, named=True)
    others = same.height - 1
    text = f"Each at its best under {about.slo_text()}, precisions apart."
    if best["usd_per_mtok_output"] is not None and others:
        text += (
            f" Cheapest: {best[side.column]} at {number(best['usd_per_mtok_output'])} USD per "
            f"million output tokens"
        )
        most = best["break_even_usd_per_gpu_hour"]
        text += "." if most is None else f"; it stays so up to {number(most)} USD per GPU and hour."
    yield text


def _same_table(same: pl.DataFrame, about: Subject, side: Side) -> Table:
    columns = [*side.keys, "gpu", "layout", "goodput_req_per_s_per_gpu", "output_tok_per_s_per_gpu"]
    columns += ["usd_per_gpu_hour", "usd_per_mtok_input", "usd_per_mtok_output"]
    columns += ["usd_per_mtok_total", "break_even_usd_per_gpu_hour", "tok_per_joule"]
    if about.target_req_per_s is None:
        return table(same, columns)
    heads = {"gpus_needed": f"GPUs for {about.target_req_per_s:g} req/s", "housed": "they stand in"}
    return table(same, [*columns, "gpus_needed", "housed"], heads)


def _interactivity_table(inter: pl.DataFrame, side: Side) -> Table:
    columns = ["at_least_tok_per_s", *side.keys, "layout", "output_tok_per_s_per_gpu"]
    columns += ["usd_per_mtok_output", "tok_per_joule"]
    return table(inter, columns, {"at_least_tok_per_s": "users see at least (tok/s)"})


def _price_table(prices: Sequence[tuple[str, tuple[float, ...], str]]) -> Table:
    rows = [
        {"gpu": name, "prices": ", ".join(number(v) for v in values), "source": source}
        for name, values, source in prices
    ]
    heads = {"prices": "USD per GPU and hour", "source": "price from"}
    return table(pl.DataFrame(rows), ["gpu", "prices", "source"], heads)
