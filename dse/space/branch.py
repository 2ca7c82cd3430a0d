"""One branch of a space, from its merged tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from dse.base.errors import Fault, SourceError, UserError
from dse.base.source import build
from dse.base.tree import Marked
from dse.catalog import Catalog
from dse.serving.deployment import Role
from dse.space.axes import Axis
from dse.space.dimensions import KINDS, Reader
from dse.space.grammar import AUTO, BranchFile, ContextFile, LayoutFile, PrecisionFile, RoleFile
from dse.space.layouts import Degrees, values_of
from dse.space.records import Branch, Dimension
from dse.space.where import Where, parse_where
from dse.space.words import OPTIONS, words_of

__all__ = ["read_branch"]

Numeric = Mapping[str, tuple[int | float, ...]]
_REQUIRED = ("model", "gpu", "engine", "precision", "context", "n_gpus")


def read_branch(
    name: str, tree: Marked, shared: Marked, catalog: Catalog, load: Numeric
) -> tuple[Branch | None, list[Fault]]:
    """Return the branch that a merged tree declares (None if it is wrong) and its faults.

    `shared` is what all branches have in common, for the one conflict that merging can make.
    """
    reader = Reader(tree, catalog)
    fields = _fields(reader)
    roles = _roles(reader, fields, shared)
    dimensions = _dimensions(reader, fields, roles)
    linked = {each for dimension in dimensions for each in dimension.names}
    stated = linked | (tree.data.keys() if isinstance(tree.data, dict) else set())
    for key in _REQUIRED:
        if key not in stated and not {f"prefill_{key}", f"decode_{key}"} <= stated:
            reader.wrong((), f"required key {key!r} is missing in branch {name}")
    branch = None if reader.faults else _branch(name, fields, roles, dimensions, load)
    numeric = [*load, *(["batch"] if fields.get("batch") else [])]
    where = _conditions(reader, fields, words_of(tuple(roles), numeric, linked))
    if branch is None or reader.faults:
        return None, reader.faults
    return replace(branch, where=where), []


def _fields(reader: Reader) -> dict[str, Any]:
    """Return the branch's values by key: all of them, or those that can be read if some cannot."""
    tree = reader.tree
    try:
        file = build(tree, BranchFile)
        return {key: getattr(file, key) for key in get_type_hints(BranchFile)}
    except SourceError as error:
        reader.wrong((), error)
    hints = get_type_hints(BranchFile, include_extras=True)
    found: dict[str, Any] = {}
    for key in tree.data if isinstance(tree.data, dict) else ():
        if key in hints:
            try:
                found[key] = build(tree, hints[key], (key,))
            except SourceError:
                continue  # already noted above, with its place
    return found


def _roles(reader: Reader, fields: Mapping[str, Any], shared: Marked) -> dict[Role, RoleFile]:
    """Return the pools: one, or prefill and decode."""
    apart = [key for key in ("prefill", "decode") if fields.get(key) is not None]
    layout = fields.get("layout")
    if len(apart) == 1:
        other = "decode" if apart == ["prefill"] else "prefill"
        reader.wrong((apart[0],), f"needs {other} beside it", key=True)
    elif apart and layout is not None:
        where = "the shared layout" if "layout" in shared.data else "layout"
        reader.wrong(
            ("layout",), f"{where} and prefill/decode exclude one another; use branches", key=True
        )
    if apart:
        return {
            "prefill": fields.get("prefill") or RoleFile(),
            "decode": fields.get("decode") or RoleFile(),
        }
    if isinstance(reader.tree.data, dict) and "split" in reader.tree.data:
        reader.wrong(("split",), "splits replicas between prefill and decode, which are not apart")
    return {"both": RoleFile(layout=layout or LayoutFile())}


def _dimensions(
    reader: Reader, fields: Mapping[str, Any], roles: Mapping[Role, RoleFile]
) -> list[Dimension]:
    found = [reader.named(kind, fields[kind], (kind,)) for kind in KINDS if fields.get(kind)]
    found += [
        reader.named(f"{role}_{kind}", items, (role, kind))
        for role, file in roles.items()
        for kind in ("gpu", "fabric", "engine")
        if (items := getattr(file, kind)) is not None
    ]
    if fields.get("precision"):
        found.append(_precision(fields["precision"]))
    for option in OPTIONS:
        if fields.get(option) is not None:
            rows = tuple({option: value} for value in fields[option].values())
            found.append(Dimension(names=(option,), rows=rows))
    for index, link in enumerate(fields.get("linked") or ()):
        dimension = reader.linked(link, ("linked", index), list(roles))
        if dimension is not None:
            _require_unstated(reader, dimension, found, index)
        found.append(dimension)
    return [dimension for dimension in found if dimension is not None]


def _precision(files: tuple[PrecisionFile, ...]) -> Dimension:
    rows = [
        {"weights": weights, "kv": kv}
        for file in files
        for weights in file.weights.values()
        for kv in file.kv.values()
    ]
    distinct = tuple(row for at, row in enumerate(rows) if row not in rows[:at])
    return Dimension(names=("weights", "kv"), rows=distinct)


def _require_unstated(
    reader: Reader, dimension: Dimension, before: list[Dimension | None], index: int
) -> None:
    """Note each linked axis that also varies on its own."""
    data = reader.tree.data
    taken = {name for each in before if each is not None for name in each.names}
    for key, name in zip(data["linked"][index], dimension.names, strict=True):
        step: Any = data
        for part in key.split("."):
            step = step.get(part) if isinstance(step, dict) else None
        if name in taken or (step is not None and key.partition(".")[0] not in KINDS):
            there = ("linked", index, key)
            reader.wrong(there, f"{key} is linked and also stated on its own", key=True)


def _branch(
    name: str,
    fields: Mapping[str, Any],
    roles: Mapping[Role, RoleFile],
    dimensions: list[Dimension],
    load: Numeric,
) -> Branch:
    batch = {"batch": fields["batch"].values()} if fields.get("batch") else {}
    split = fields["split"]
    return Branch(
        name=name,
        dimensions=tuple(dimensions),
        degrees={role: _degrees(file.layout) for role, file in roles.items()},
        n_gpus=_whole(fields["n_gpus"]) if fields["n_gpus"] else (),
        split=split if split == AUTO else tuple((each.prefill, each.decode) for each in split),
        contexts=_contexts(fields["context"]),
        numeric={**batch, **load},
    )


def _degrees(layout: LayoutFile) -> Degrees:
    return Degrees(
        tp=_whole(layout.tp),
        dp=_whole(layout.dp),
        ep=values_of(layout.ep),
        pp=_whole(layout.pp),
        cp=_whole(layout.cp),
    )


def _whole(axis: Axis) -> tuple[int, ...]:
    return tuple(int(value) for value in axis.values())


def _contexts(files: tuple[ContextFile, ...]) -> tuple[tuple[int, int], ...]:
    pairs = [
        (int(isl), int(osl))
        for file in files
        for isl in file.isl.values()
        for osl in file.osl.values()
    ]
    return tuple(dict.fromkeys(pairs))


def _conditions(reader: Reader, fields: Mapping[str, Any], words: Any) -> tuple[Where, ...]:
    found = []
    for index, text in enumerate(fields.get("where") or ()):
        try:
            found.append(parse_where(text, words))
        except UserError as error:
            reader.wrong(("where", index), error)
    return tuple(found)
