"""Held-out errors of collective prices: slices of `dse validate --kernels`, a part of a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dse.evidence.collective_rows import EXCHANGES
from dse.evidence.exchange_page import exchange_page
from dse.evidence.unseen import Unseen
from dse.evidence.validate_collectives import n_crawling, unseen
from dse.hardware.fabric import Fabric

# Small: up to 1 MiB on 2 to 8 ranks. Priced: tokens for which the mode is run.
ALL, SMALL, PRICED = "collective_s", "collective_s, small", "collective_s, priced"


def collective_slices(rows: Sequence[Unseen]) -> Iterator[dict[str, Any]]:
    """One slice a collective, and one a GPU and engine; of expert exchange one a node count,
    and of its normal kernels one for all sources that agree, or do not.
    """
    groups: dict[str, list[Unseen]] = {}
    for row in rows:
        if row.collective in EXCHANGES:
            names = [f"{row.collective}: {row.gpu} {row.engine}, unseen {row.held}"]
            if row.state is not None:
                names.append(f"deepep normal, {row.state}: {row.collective}, unseen {row.held}")
        else:
            family = f"family={row.collective}"
            names = [family, f"{row.collective}: {row.gpu} {row.engine}"]
        for name in names:
            groups.setdefault(name, []).append(row)
    for name, members in groups.items():
        yield from _slice(name, ALL, members)
        if members[0].collective in EXCHANGES:
            yield from _slice(name, PRICED, [each.priced for each in members])
        else:
            yield from _slice(name, SMALL, [each.small for each in members])


def _slice(name: str, metric: str, rows: Sequence[Unseen]) -> Iterator[dict[str, Any]]:
    error = np.concatenate([each.error for each in rows])
    if len(error):
        yield {
            "slice": name,
            "metric": metric,
            "n": len(error),
            "mape": float(np.mean(np.abs(error))),
            "median_ape": float(np.median(np.abs(error))),
            "bias": float(np.median(error)),
            "coverage_80": float(np.mean(np.concatenate([each.inside for each in rows]))),
        }


def collectives_page(fabrics: Mapping[str, Fabric]) -> str:
    """The part on collectives of the accuracy page, as Markdown."""
    rows = list(unseen(fabrics))
    ladders = [row for row in rows if row.collective not in EXCHANGES]
    exchanges = [row for row in rows if row.collective in EXCHANGES]
    aside = {gpu: n_crawling({gpu: fabric}) for gpu, fabric in fabrics.items()}
    out = [
        "Every second message size is held out of these fits (the shipped constants use all). "
        "*Worst rank count* is the largest median of one count of 2 to 8 ranks.\n",
        "| GPU | collective | rows | median | mean | inside | up to 1 MiB on 2-8 ranks: median "
        "| mean | worst rank count |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_ladder(row) for row in ladders),
        "",
        "Set aside, as large messages reach less than a quarter of the link (hosts without peer "
        "access): " + ", ".join(f"{gpu} {n} rows" for gpu, n in aside.items() if n) + ".\n",
        exchange_page(exchanges),
    ]
    return "\n".join(out)


def _ladder(row: Unseen) -> str:
    error, small = np.abs(row.error), row.small
    few = np.abs(small.error)
    worst = max(np.median(few[small.ranks == ranks]) for ranks in np.unique(small.ranks))
    return (
        f"| {row.gpu} | {row.engine} {row.collective} | {len(error)} | {np.median(error):.1%} | "
        f"{error.mean():.1%} | {row.inside.mean():.0%} | {np.median(few):.1%} | {few.mean():.1%} | "
        f"{worst:.1%} |"
    )
