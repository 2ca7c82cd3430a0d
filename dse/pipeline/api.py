"""The Python interface: a study answered, or its stored answer, as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from dse.base.errors import StoreError
from dse.pipeline.run import EASY, Means, Ran
from dse.pipeline.run import run as run_study
from dse.pipeline.stored import stored
from dse.report.record import Funnel
from dse.store import Store
from dse.study import Study, load_study

__all__ = ["Report", "project_of", "run", "show", "store_path"]

Settings = Mapping[str, str] | Sequence[str]

# Columns that say which row of a frame a point was; they differ from run to run.
_INTERNAL = ("point", "structure")
STORE = "dse.duckdb"


@dataclass(frozen=True, slots=True)
class Report:
    """What a study was answered, as polars frames; columns carry their unit in their name."""

    ran: Ran

    def front(self) -> pl.DataFrame:
        """The feasible points that none other beats, best by the first objective first."""
        return self.ran.outcome.front.drop(_INTERNAL, strict=False)

    def results(self) -> pl.DataFrame:
        """Every simulated point with `feasible` and `on_front`."""
        return self.ran.outcome.results.drop(_INTERNAL, strict=False)

    def near_misses(self) -> pl.DataFrame:
        """The infeasible points that came nearest, with `reason`, `margin` and `remedy`."""
        return self.ran.outcome.near_misses.drop(_INTERNAL, strict=False)

    def funnel(self) -> Funnel:
        """How many points each rule, wall and screen removed, and how many were simulated."""
        return self.ran.outcome.funnel

    def write(self, folder: str | Path, formats: Sequence[str] = ()) -> list[Path]:
        """Write the report into `folder`, whole or not at all; by default as `dse run` does.

        Raises `UserError` for an unknown format or a folder that cannot be written.
        """
        from dse.report.page import DEFAULT, write

        return write(self.ran.outcome, Path(folder), tuple(formats) or DEFAULT)


def run(
    study: str | Path | Study,
    *,
    store: str | Path | None = None,
    workers: str | int | None = None,
    ray: str | None = None,
    scenario: str | None = None,
    set_: Settings = (),
    means: Means = EASY,
) -> Report:
    """Answer a study (its file, or one that is loaded) as `dse run` does, without writing a report.

    `store` is the project's dse.duckdb unless named; `scenario` and `set_` belong to a file.
    Raises what `load_study` raises, and `StoreError`. An empty front is an answer, not an error.
    """
    asked = _loaded(study, scenario, set_)
    if workers is not None or ray is not None:
        means = replace(means, workers=means.workers if workers is None else workers, ray=ray)
    with Store.open(store or store_path(asked.path)) as opened:
        return Report(run_study(asked, store=opened, means=means, command=f"dse run {asked.path}"))


def show(
    study: str | Path | Study,
    *,
    store: str | Path | None = None,
    scenario: str | None = None,
    set_: Settings = (),
) -> Report:
    """The stored answer of a study; nothing is simulated.

    Raises `StoreError` where there is no store, `UserError` where it lacks a result.
    """
    asked = _loaded(study, scenario, set_)
    where = Path(store) if store is not None else store_path(asked.path)
    if not where.exists():
        raise StoreError(f"{where} does not exist", f"dse run {asked.path}")
    with Store.open(where, read_only=True) as opened:
        return Report(stored(asked, opened))


def project_of(study: str | Path) -> Path:
    """The folder that a study belongs to: the one beside `studies/`, else the study's own."""
    folder = Path(study).resolve().parent
    return folder.parent if folder.name == "studies" else folder


def store_path(study: str | Path) -> Path:
    """The store of a study unless another is named: its project's dse.duckdb."""
    return project_of(study) / STORE


def _loaded(study: str | Path | Study, scenario: str | None, set_: Settings) -> Study:
    return study if isinstance(study, Study) else load_study(study, scenario=scenario, set_=set_)
