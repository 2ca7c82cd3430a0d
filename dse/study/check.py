"""What can be said of a space or a study without running it: faults, sizes, predicted cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dse.base.errors import DseError, SourceError
from dse.base.parse import load_tree, resolve_includes
from dse.catalog import Catalog
from dse.pareto import OBJECTIVES
from dse.space import Size, Space, load_space, size
from dse.space.blocks import Blocks
from dse.study.predict import predict
from dse.study.read import load_study
from dse.study.study import Study

__all__ = ["check", "is_study", "notes_of", "unsupported"]

_STUDY_KEYS = frozenset({"question", "space", "objectives", "load", "slo", "workload", "search"})


def check(
    path: str | Path,
    *,
    scenario: str | None = None,
    set_: Mapping[str, str] | Sequence[str] = (),
    catalog: Catalog | None = None,
) -> dict[str, Any]:
    """Return what `dse check` prints of the file at `path`, faults included.

    `ok` says whether there are none; then `kind` (`study` or `space`), `axes`, `n_points` and
    `n_structural` describe its size, by branch too, and a study's `predicted` simulations and CPU
    seconds, `unsupported` (what cannot be simulated, by name) and `notes` follow.
    """
    try:
        if not is_study(path):
            found = load_space(path, catalog or Catalog.load())
            return _sized("space", found, size(found, catalog or Catalog.load()))
        study = load_study(path, catalog, scenario=scenario, set_=set_)
    except SourceError as error:
        return {"ok": False, "faults": [asdict(fault) for fault in error.faults]}
    return _of_study(study)


def is_study(path: str | Path) -> bool:
    """Say whether a file is a study; a space has none of a study's keys."""
    tree = resolve_includes(load_tree(path))
    return isinstance(tree.data, dict) and bool(_STUDY_KEYS & tree.data.keys())


def notes_of(study: Study) -> list[str]:
    """Return what a user should know of a study before running it."""
    notes = [
        f"{kind}: a percentile's only sound bound is one request's floor, so the search by bound "
        "drops few points"
        for kind in study.objectives
        if study.search.method == "bound" and OBJECTIVES[kind].is_percentile
    ]
    if any(kind.startswith("ttft") for kind in study.objectives):
        notes.append("a TTFT objective lets the search by bound drop few points")
    if study.search.method == "optuna":
        notes.append("a sampler proves nothing about the points that it does not simulate")
    return notes


def unsupported(study: Study) -> list[str]:
    """Return by name what of a study cannot be simulated, so that nothing is ignored in silence."""
    lacking = [
        f"speculative {cells['speculative']}: {cells['model']} has no such module"
        for cells, parts in Blocks(study.space, study.catalog).parts()
        if parts.speculative is not None
        and parts.speculative.method == "mtp"
        and parts.model.speculative is None
    ]
    return list(dict.fromkeys(lacking))


def _of_study(study: Study) -> dict[str, Any]:
    found = _sized("study", study.space, size(study.space, study.catalog))
    try:
        predicted: dict[str, Any] | None = asdict(predict(study))
    except DseError:
        predicted = None
    empty = [] if found["n_points"] else ["no point satisfies the conditions"]
    return {
        **found,
        "name": study.name,
        "question": study.question,
        "load": study.load,
        "predicted": predicted,
        "unsupported": unsupported(study),
        "notes": [*empty, *notes_of(study)],
    }


def _sized(kind: str, space: Space, found: Size) -> dict[str, Any]:
    return {
        "ok": True,
        "faults": [],
        "kind": kind,
        "axes": {branch: dict(axes) for branch, axes in found.axes.items()},
        "values": {branch.name: _values(space, branch.name) for branch in space.branches},
        "n_points": found.n_points,
        "n_structural": found.n_structural,
        "branches": dict(found.branches),
    }


def _values(space: Space, name: str) -> dict[str, list[Any]]:
    """Return the values of a branch's axes as they were read, so that `8Ki` shows as 8192."""
    branch = space.branch(name)
    values: dict[str, list[Any]] = {
        column: list(dict.fromkeys(row[column] for row in dimension.rows if column in row))
        for dimension in branch.dimensions
        for column in dimension.names
    }
    for role, degrees in branch.degrees.items():
        before = "" if role == "both" else f"{role}_"
        for degree in ("tp", "dp", "ep", "pp", "cp"):
            found = getattr(degrees, degree)
            values[f"{before}{degree}"] = [found] if isinstance(found, str) else list(found)
    values["n_gpus"] = values.get("n_gpus", list(branch.n_gpus))
    values["context"] = [f"{isl}/{osl}" for isl, osl in branch.contexts]
    return values | {column: list(found) for column, found in branch.numeric.items()}
