"""Study: a question asked of a space, resolved and frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dse.base.digest import digest
from dse.base.errors import StudyError
from dse.catalog import Catalog
from dse.hardware import GPU
from dse.pareto import OBJECTIVES, Objective
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.space import Space
from dse.space.where import Where
from dse.study.asked import Asked, Load
from dse.study.grammar import Search, Target
from dse.study.price import Price, Quoted

__all__ = ["Study"]

CLOSED_LOOP, CONCURRENCY, RATE = "closed_loop", "concurrency", "req_per_s"
MAX_GOODPUT, TRACE = "max_goodput", "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A question, the space it is asked of, and how its answer is found.

    `load` is `closed_loop`, `concurrency`, `req_per_s`, `max_goodput` or `trace`; the values of a
    list stand in the space's numeric axes. `constraints` are conditions on a point's results,
    `screens` on its columns; `compare_by` is one of those. `document` is the file as it was
    understood: includes, overrides and settings applied, the space in place.
    """

    name: str
    path: Path
    question: str
    space: Space
    catalog: Catalog
    asked: Asked
    load: str
    objectives: tuple[str, ...]
    search: Search
    slo: SLO | None = None
    constraints: tuple[Where, ...] = ()
    screens: tuple[Where, ...] = ()
    target: Target | None = None
    price: Mapping[str, Price] = field(default_factory=dict)
    compare_by: str | None = None
    scenario: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def study_id(self) -> str:
        """The digest of the study as it was understood."""
        return digest(dict(self.document))

    @property
    def text(self) -> str:
        """The study as it was understood, as YAML (in its JSON form)."""
        return json.dumps(self.document, indent=2, ensure_ascii=False)

    @property
    def parts(self) -> tuple[Objective, ...]:
        """The objectives as parts of their family, in the study's order."""
        return tuple(OBJECTIVES[kind]() for kind in self.objectives)

    @property
    def is_load_searched(self) -> bool:
        """Whether the load of a point is found by probing (`max_goodput`) instead of given."""
        return self.load == MAX_GOODPUT

    def loads(self, row: Mapping[str, Any]) -> Load:
        """Return the load that a point's row offers; empty where it is searched or recorded."""
        if self.load in {CLOSED_LOOP, CONCURRENCY}:
            return Load(concurrency=int(row["concurrency"]))
        if self.load == RATE:
            return Load(req_per_s=float(row["req_per_s"]))
        return Load()

    def workload_of(self, row: Mapping[str, Any], load: Load | None = None) -> Workload:
        """Return what a point's deployment is asked: its context under its load.

        `load` replaces the row's own, as the probes of a `max_goodput` study do; a study whose load
        is searched needs one.
        """
        offered = load or self.loads(row)
        if self.is_load_searched and offered == Load():
            raise StudyError("the load of this study is searched", "give the rate to probe")
        return self.asked.workload(int(row["isl_tokens"]), int(row["osl_tokens"]), offered)

    def price_of(self, name: str, gpu: GPU) -> Price | None:
        """Return the price of a GPU: the study's, else the newest of the catalog, else None.

        Of several quotes of the newest date the cheapest, as the dearer need not be paid; its
        source says how many there are and up to what.
        """
        if name in self.price:
            return self.price[name]
        quotes = self.catalog.prices(name)
        if not quotes:
            return None
        date = max(quote.date for quote in quotes)
        same = sorted(
            (quote for quote in quotes if quote.date == date),
            key=lambda quote: (quote.usd_per_gpu_hour, quote.name),
        )
        newest = same[0]
        source = f"{newest.name}, {date} ({newest.basis}): {newest.source}"
        if len(same) > 1:
            top = same[-1].usd_per_gpu_hour
            source += f"; the cheapest of {len(same)} quotes of {date}, up to {top:g} USD/h"
        return Quoted(usd_per_hour=(newest.usd_per_gpu_hour,), source=source)
