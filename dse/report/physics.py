"""Why it is so: walls in order, floors against concurrency, roofline, where a step's time goes."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import polars as pl

from dse.base.errors import CatalogError
from dse.hardware import DType
from dse.report.layouts import busy_replicas, in_flight, label
from dse.report.quantities import number
from dse.report.record import Outcome
from dse.report.section import Figure, Part, Rows, Section
from dse.report.tables import distinct

__all__ = ["breakdown", "roofline", "walls"]

MOST = 8
Detail = Mapping[str, Any]
Row = Mapping[str, Any]


def walls(outcome: Outcome) -> Part | None:
    """Which wall binds at which concurrency, and the floors of TPOT against it."""
    from dse.report.charts import physics as charts
    from dse.report.charts.theme import spec_of

    orders = [
        {
            **_who(row),
            "wall": str(each["wall"]).replace("_", " "),
            "at": float(each["concurrency"]) * busy_replicas(row),
        }
        for row, detail in _described(outcome, "walls")
        for each in detail["walls"].get("wall_order") or []
        if each.get("concurrency")
    ]
    floors = [
        {**_who(row), **{name: float(each[name]) for name in ("concurrency", *_FLOORS)}}
        for row, detail in _described(outcome, "curve")
        for each in detail["curve"]
        if all(each.get(name) is not None for name in ("concurrency", *_FLOORS))
    ]
    figures: list[Figure] = []
    datasets: dict[str, Rows] = {}
    if orders:
        names = list(dict.fromkeys(each["who"] for each in orders))
        kinds = sorted({each["wall"] for each in orders})
        load = [
            {**_who(row), "at": at}
            for row, _ in _described(outcome, "walls")
            if (at := in_flight(row)) is not None
        ]
        figures.append(
            Figure(
                name="wall-order",
                title="Which wall comes first",
                spec=spec_of(charts.wall_order, names, kinds, has_load=bool(load)),
                alt="Per layout, the concurrency at which each wall starts to bind: "
                + "; ".join(f"{e['who']} {e['wall']} {number(e['at'])}" for e in orders[:12]),
                caption="Requests in flight at which each wall starts to bind (dots) and the "
                "load of the point (bar). The leftmost wall right of the bar is the next.",
            )
        )
        datasets |= {"wall_order": orders, "wall_load": load}
    if floors:
        names = list(dict.fromkeys(each["who"] for each in floors))
        figures.append(
            Figure(
                name="floors",
                title="TPOT floors against concurrency",
                spec=spec_of(charts.floors, names),
                alt="Per layout, the interval from the overlapped to the serial floor of TPOT "
                "against requests in flight; the layout that is lowest changes where bands cross.",
                caption="From t_opt (every resource overlapped, line) to t_sum (one after the "
                "other, top of the band). Where bands cross, the better layout changes.",
            )
        )
        datasets["floors"] = floors
    if not figures:
        return None
    section = Section(name="walls", title="What holds it back", charts=tuple(figures))
    return Part(section=section, datasets=datasets)


def breakdown(outcome: Outcome) -> Part | None:
    """Seconds by kernel family of the front members."""
    from dse.report.charts import physics as charts
    from dse.report.charts.theme import spec_of

    rows = [
        {
            **_who(row),
            "phase": str(each.get("phase") or "all steps"),
            "family": str(each["family"]).replace("_", " "),
            "seconds": float(each["seconds"]),
        }
        for row, detail in _described(outcome, "breakdown")
        for each in detail["breakdown"]
        if each.get("seconds")
    ]
    if not rows:
        return None
    rows, families = _shared(rows)
    first = [each for each in rows if each["who"] == rows[0]["who"]]
    figure = Figure(
        name="breakdown",
        spec=spec_of(
            charts.breakdown,
            list(dict.fromkeys(each["who"] for each in rows)),
            families,
            list(dict.fromkeys(each["phase"] for each in rows)),
        ),
        alt=f"Time of a step by kernel family; {rows[0]['who']}: "
        + ", ".join(f"{each['family']} {100 * each['share']:.0f}%" for each in first),
        caption="Share of a replica's busy time by kernel family. What is large is what a faster "
        "kernel, another layout or another GPU would have to shrink.",
    )
    section = Section(name="breakdown", title="Where the time goes", charts=(figure,))
    return Part(section=section, datasets={"breakdown": rows})


def _shared(rows: Rows) -> tuple[Rows, list[str]]:
    """`rows` with the `share` of their bar and the `rank` of their family, the largest first; small
    families beyond what colours tell apart are one.
    """
    from dse.report.charts.theme import COLOURS

    bar = ["who", "phase"]
    share = pl.col("seconds") / pl.col("seconds").sum().over(bar)
    frame = pl.DataFrame(rows).with_columns(share=share)
    ranked = frame.group_by("family").agg(pl.col("share").sum())
    families = ranked.sort("share", "family", descending=[True, False])["family"].to_list()
    if len(families) > len(COLOURS):
        families = [*families[: len(COLOURS) - 1], "others"]
        kept = pl.col("family").is_in(families)
        frame = frame.with_columns(family=pl.when(kept).then("family").otherwise(pl.lit("others")))
        same = [name for name in frame.columns if name not in ("seconds", "share")]
        frame = frame.group_by(same, maintain_order=True).agg(pl.col("seconds", "share").sum())
    ranks = {name: index for index, name in enumerate(families)}
    return frame.with_columns(rank=pl.col("family").replace_strict(ranks)).to_dicts(), families


def roofline(outcome: Outcome) -> Part | None:
    """Operating points of prefill and decode under the roofs of their GPUs."""
    from dse.report.charts import physics as charts
    from dse.report.charts.theme import spec_of

    points = [
        point
        for row, detail in _described(outcome, "walls")
        for point in _operating(row, detail["walls"].get("steps") or {})
    ]
    kinds = dict.fromkeys((p["gpu"], p["weights"]) for p in points)
    roofs = [line for gpu, weights in kinds for line in _roof(outcome, gpu, weights, points)]
    if not points or not roofs:
        return None
    gpus = distinct(outcome.results["gpu"])
    figure = Figure(
        name="roofline",
        spec=spec_of(charts.roofline, gpus),
        alt="Achievable FLOP/s against arithmetic intensity: "
        + "; ".join(f"{p['who']} {p['phase']} {number(p['intensity'])} FLOP/B" for p in points[:6]),
        caption="Lines are the roofs of each GPU (dense peak, HBM bandwidth). Bars span what a "
        "step reaches from t_sum to t_opt; left of the ridge HBM binds, right of it arithmetic. "
        "Decode is a step over the requests in flight at the load of the point.",
    )
    section = Section(name="roofline", title="Roofline", charts=(figure,))
    return Part(section=section, datasets={"roof": roofs, "operating": points})


_FLOORS = ("t_opt_s", "t_sum_s")


def _described(outcome: Outcome, key: str) -> Iterator[tuple[Row, Detail]]:
    """The points with this detail, one a layout: the front's best first, then the others."""
    seen: set[str] = set()
    known = outcome.results.filter(pl.col("point_id").is_in(list(outcome.details)))
    for row in chain(outcome.front.iter_rows(named=True), known.iter_rows(named=True)):
        detail = outcome.details.get(row["point_id"], {})
        who = _who(row)["who"]
        if detail.get(key) and who not in seen and len(seen) < MOST:
            seen.add(who)
            yield row, detail


def _who(row: Row) -> dict[str, Any]:
    return {
        "point_id": row["point_id"],
        "gpu": row.get("gpu"),
        "who": f"{row.get('gpu')} {label(row)}",
    }


def _operating(row: Row, steps: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for phase, step in steps.items():
        if not step:
            continue
        amounts: dict[str, float] = {}
        for term in step.get("terms") or []:
            resource = str(term["resource"])
            amounts[resource] = amounts.get(resource, 0.0) + float(term["amount"])
        flop, moved = amounts.get("flop"), amounts.get("hbm")
        if flop and moved and step.get("t_opt_s") and step.get("t_sum_s"):
            yield {
                **_who(row),
                "phase": phase,
                "weights": str(row.get("weights") or "bf16"),
                "intensity": flop / moved,
                "high_tflop_per_s": flop / step["t_opt_s"] / 1e12,
                "low_tflop_per_s": flop / step["t_sum_s"] / 1e12,
            }


def _roof(outcome: Outcome, gpu: str, weights: str, points: Rows) -> list[dict[str, Any]]:
    try:
        facts = outcome.study.catalog.gpu(gpu)
        dtype = DType(weights)
        compute = dtype if facts.supports(dtype) else DType.BF16
        peak = facts.peak(compute)
    except (CatalogError, ValueError, KeyError):
        return []
    ridge = peak / facts.hbm_bytes_per_s
    low = min([0.5 * p["intensity"] for p in points] + [ridge / 10])
    high = max([2 * p["intensity"] for p in points] + [ridge * 10])
    return [
        {
            "gpu": gpu,
            "roof": f"{gpu} {compute.compute}",
            "intensity": x,
            "tflop_per_s": min(peak, x * facts.hbm_bytes_per_s) / 1e12,
        }
        for x in (low, ridge, high)
    ]
