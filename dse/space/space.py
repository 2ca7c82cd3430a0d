"""YAML → Space: branches merged, names looked up, conditions parsed, every fault found at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dse.base.errors import Fault, SourceError
from dse.base.parse import load_tree, resolve_includes
from dse.base.source import build
from dse.base.tree import Marked
from dse.catalog import Catalog
from dse.space.branch import read_branch
from dse.space.overlay import overlay
from dse.space.records import Branch, Space

__all__ = ["ONLY_BRANCH", "Branch", "Space", "load_space"]

ONLY_BRANCH = "all"
"""The name of the branch of a space that has no `any_of`."""

_HEAD = ("description", "any_of")

Numeric = Mapping[str, tuple[int | float, ...]]


def load_space(
    source: str | Path | Marked, catalog: Catalog, *, load: Numeric | None = None
) -> Space:
    """Return the space that a YAML file (or its tree, includes resolved) declares.

    `load` adds the numeric axes that a study's load brings: `concurrency` or `req_per_s` by column
    name. All faults are raised together, as one `SourceError`.
    """
    tree = source if isinstance(source, Marked) else resolve_includes(load_tree(source))
    faults: list[Fault] = []
    head = _head(tree, faults)
    branches: list[Branch] = []
    for name, branch_tree, shared in _branches(tree):
        found, wrong = read_branch(name, branch_tree, shared, catalog, load or {})
        faults.extend(_placed(fault, tree, name) for fault in wrong)
        if found is not None:
            branches.append(found)
    if faults:
        raise SourceError(faults)
    return Space(source=tree.mark().file, branches=tuple(branches), description=head.description)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The keys that are the space's alone; a branch is read once merged with what all share."""

    description: str = ""
    any_of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _head(tree: Marked, faults: list[Fault]) -> _Head:
    """Return the keys of the space alone, noting what is wrong with them."""
    if not isinstance(tree.data, dict):
        faults.append(tree.fault((), "a space is a mapping of keys; see `dse schema space`"))
        return _Head()
    own = tree
    for key in [key for key in tree.data if key not in _HEAD]:
        own = own.without(key)
    try:
        return build(own, _Head)
    except SourceError as error:
        faults.extend(error.faults)
        return _Head()


def _branches(tree: Marked) -> list[tuple[str, Marked, Marked]]:
    """Return each branch's name, its merged tree, and the tree of what the branches share."""
    if not isinstance(tree.data, dict):
        return []
    shared = tree
    for key in _HEAD:
        shared = shared.without(key)
    named = tree.data.get("any_of")
    if not isinstance(named, dict) or not named:
        return [(ONLY_BRANCH, shared, shared)]
    own = {name: tree.under(("any_of", name)) for name in named if isinstance(named[name], dict)}
    return [(str(name), overlay(shared, each), shared) for name, each in own.items()]


def _placed(fault: Fault, tree: Marked, name: str) -> Fault:
    """Return a branch's fault with its path in the whole file, if it stands in the branch."""
    before = ("any_of", name)
    marks = [*tree.values.items(), *tree.keys.items()]
    places = {(m.line, m.column) for path, m in marks if path[:2] == before and len(path) > 2}
    inside = (fault.line, fault.column) in places
    return replace(fault, path=f"any_of.{name}.{fault.path}") if inside else fault
