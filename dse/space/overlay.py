"""Laying one YAML tree on another, as branches, overrides and command-line settings do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dse.base.tree import Marked, TreePath, merge
from dse.space.axes import AXES

__all__ = ["overlay"]

_WHOLE = {"base", "capex", "usd_per_hour", "isl", *(form.key() for form in AXES.values())}
"""Keys of mappings that are one value: such a mapping replaces what was there."""

_CONCATENATED = ("where", "linked")


def overlay(below: Marked, above: Marked) -> Marked:
    """Lay `above` on `below`: mappings are joined key by key, anything else is replaced.

    A mapping that is one value (`{powers_of: 2, to: 8}`) replaces its like, though `{to: 64}` alone
    changes the bound of the range below. Conditions and links of both hold.
    """
    joined = _with_both_lists(below, above)
    for path in _whole(joined.data, ()):
        if isinstance(_at(below.data, path), dict):
            below = merge(below, Marked(None, {}).nested(path))
    return merge(below, joined)


def _with_both_lists(below: Marked, above: Marked) -> Marked:
    """Return `above` with the conditions and links of `below` put before its own."""
    if not isinstance(above.data, dict) or not isinstance(below.data, dict):
        return above
    data, values, keys = dict(above.data), dict(above.values), dict(above.keys)
    for name in _CONCATENATED:
        first, second = below.data.get(name), above.data.get(name)
        if not (isinstance(first, list) and isinstance(second, list)):
            continue
        data[name] = [*first, *second]
        for marks, under, over in (
            (values, below.values, above.values),
            (keys, below.keys, above.keys),
        ):
            for path in [path for path in marks if path[:1] == (name,) and len(path) > 1]:
                del marks[path]
            marks.update(_shifted(under, name, 0))
            marks.update(_shifted(over, name, len(first)))
    return Marked(data, values, keys, above.faults)


def _shifted(marks: Any, name: str, by: int) -> dict[TreePath, Any]:
    """Return the marks of a list's items, moved `by` places."""
    return {
        (name, int(path[1]) + by, *path[2:]): mark
        for path, mark in marks.items()
        if path[:1] == (name,) and len(path) > 1
    }


def _whole(data: Any, path: TreePath) -> Iterator[TreePath]:
    if isinstance(data, dict):
        if path and _WHOLE & data.keys():
            yield path
        else:
            for key, value in data.items():
                yield from _whole(value, (*path, key))


def _at(data: Any, path: TreePath) -> Any:
    for step in path:
        if not isinstance(data, dict) or step not in data:
            return None
        data = data[step]
    return data
