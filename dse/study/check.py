"""What can be said of a space or a study without running it: faults, sizes, predicted cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from dse.base.errors import DseError, SourceError
from dse.base.parse import load_tree, resolve_includes
from dse.catalog import Catalog
from dse.pareto import OBJECTIVES
from dse.space import Size, Space, load_space, size, structures
from dse.space.blocks import Blocks
from dse.space.refused import refusal
from dse.study.predict import Legal, predict
from dse.study.read import STUDY_KEYS, load_study
from dse.study.room import axes_of, most_survivors, narrower, sifting
from dse.study.study import Study
from dse.study.vast import is_vast

__all__ = ["check", "is_study", "notes_of", "unsupported"]

MOST_REFUSED = 2000
"""Structures of which the reasons are looked up where nothing is legal."""


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
    seconds, `refused` (the broken rules where nothing is legal), `unsupported` (what cannot be
    simulated, by name) and `notes` follow.
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
    return isinstance(tree.data, dict) and bool(STUDY_KEYS & tree.data.keys())


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
    used = _gpus(study)
    absent = [name for name in study.price if name not in used]
    if absent:
        notes.append(f"a price is given for {', '.join(absent)}, which the space does not have")
    return notes


def _gpus(study: Study) -> set[str]:
    """The GPUs of the space by the names that prices go by."""
    columns = ("gpu", "prefill_gpu", "decode_gpu")
    return {
        str(cells[name])
        for cells, _ in Blocks(study.space, study.catalog).parts()
        for name in columns
        if name in cells
    }


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
    legal = Legal(study)
    predicted: dict[str, Any] | None = None
    try:
        counted = size(study.space, study.catalog, seen=legal.add)
        predicted = asdict(predict(study, legal))
    except DseError:
        counted = size(study.space, study.catalog)
    found = _sized("study", study.space, counted)
    empty = [] if found["n_points"] else ["no point satisfies the conditions"]
    refused = []
    if predicted is not None and 0 < found["n_points"] == predicted["n_illegal"]:
        refused = _refused(study)
    return {
        **found,
        "name": study.name,
        "question": study.question,
        "load": study.load,
        "predicted": predicted,
        "refused": refused,
        "unsupported": unsupported(study),
        "notes": [*empty, *_crowded(study, legal.n_legal), *notes_of(study)],
    }


def _crowded(study: Study, n_legal: int) -> list[str]:
    """What a run will say where walls do not leave far fewer than the legal points."""
    most = most_survivors()
    if is_vast(study):
        return [
            f"{n_legal:,} legal points are judged and counted without a row for each; the likely "
            "best are searched within the budget, and the certificate says what that leaves open"
        ]
    if n_legal <= most:
        return []
    return [
        f"of {n_legal:,} legal points this machine's free memory holds {most:,} "
        f"({most / n_legal:.1%}): dse run stops where walls and screens leave more; "
        + narrower(axes_of(study.space))
        + sifting(study)
    ]


def _refused(study: Study) -> list[dict[str, Any]]:
    """Why nothing is legal: each broken rule, how many structures break it first, and the reason
    of one of them with its numbers.
    """
    found: dict[str, dict[str, Any]] = {}
    for structure in islice(structures(study.space, study.catalog), MOST_REFUSED):
        first = structure.illegal[0]
        if first.rule not in found:
            reason = refusal(structure)
            found[first.rule] = {"rule": first.rule, "n_structures": 0, "reason": reason}
        found[first.rule]["n_structures"] += 1
    return sorted(found.values(), key=lambda each: -each["n_structures"])


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
