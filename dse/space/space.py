"""YAML → Space: branches merged, names looked up, conditions parsed, every fault found at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dse.base.errors import Fault, SourceError
from dse.base.parse import load_tree, resolve_includes
from dse.base.source import build
from dse.base.tree import Marked
from dse.catalog import Catalog
from dse.space.branch import read_branch
from dse.space.grammar import SpaceFile
from dse.space.overlay import overlay
from dse.space.records import Branch, Space

__all__ = ["ONLY_BRANCH", "Branch", "Space", "load_space"]

ONLY_BRANCH = "all"
"""The name of the branch of a space that has no `any_of`."""

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
    file = SpaceFile()
    try:
        file = build(tree, SpaceFile)
    except SourceError as error:
        faults.extend(error.faults)
    branches: list[Branch] = []
    for name, branch_tree, shared in _branches(tree):
        found, wrong = read_branch(name, branch_tree, shared, catalog, load or {})
        faults.extend(wrong)
        if found is not None:
            branches.append(found)
    if faults:
        raise SourceError(faults)
    return Space(source=tree.mark().file, branches=tuple(branches), description=file.description)


def _branches(tree: Marked) -> list[tuple[str, Marked, Marked]]:
    """Return each branch's name, its merged tree, and the tree of what the branches share."""
    if not isinstance(tree.data, dict):
        return []
    shared = tree
    for key in ("any_of", "description"):
        shared = shared.without(key)
    named = tree.data.get("any_of")
    if not isinstance(named, dict) or not named:
        return [(ONLY_BRANCH, shared, shared)]
    own = {
        name: tree.under(("any_of", name)) for name, data in named.items() if isinstance(data, dict)
    }
    return [(str(name), overlay(shared, each), shared) for name, each in own.items()]
