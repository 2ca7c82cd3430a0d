"""A marked tree: plain data in which every value and key knows its file, line and column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dse.base.errors import Fault

__all__ = ["Mark", "Marked", "TreePath", "dotted", "merge"]

TreePath = tuple[object, ...]
"""Keys and indices from the root down, such as `("axes", "tp", 0)`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a key or a value starts; `line` and `column` count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Marked:
    """Plain data and the place of each part of it.

    `values` and `keys` map a path, such as `("axes", "tp", 0)`, to the start of the value and of
    the key there. `faults` are those found while parsing, to be reported with the rest.
    """

    data: Any
    values: Mapping[TreePath, Mark]
    keys: Mapping[TreePath, Mark] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def at(self, path: TreePath = ()) -> Any:
        """Return the data at `path`; a `KeyError` or `IndexError` if there is none."""
        data = self.data
        for step in path:
            data = data[step]
        return data

    def mark(self, path: TreePath = (), *, key: bool = False) -> Mark:
        """Return the place of the value (or key) at `path`, or of its nearest ancestor."""
        if key and path in self.keys:
            return self.keys[path]
        while path not in self.values and path:
            path = path[:-1]
        return self.values.get(path, Mark("<data>", 1, 1))

    def fault(self, path: TreePath, message: str, *, key: bool = False) -> Fault:
        """Return the fault `message` at `path`."""
        mark = self.mark(path, key=key)
        return Fault(mark.file, mark.line, mark.column, dotted(path), message)

    def under(self, path: TreePath) -> Marked:
        """Return the tree that stands at `path`, as a tree of its own."""
        size = len(path)
        return Marked(
            self.at(path),
            {there[size:]: mark for there, mark in self.values.items() if there[:size] == path},
            {there[size:]: mark for there, mark in self.keys.items() if there[:size] == path},
            self.faults,
        )

    def without(self, key: str) -> Marked:
        """Return the tree without one of its top-level keys."""
        return replace(self, data={name: value for name, value in self.data.items() if name != key})

    def nested(self, path: TreePath) -> Marked:
        """Return a tree that holds this one at `path` and nothing else."""
        data = self.data
        for step in reversed(path):
            data = {step: data}
        values = {path + there: mark for there, mark in self.values.items()}
        root = self.mark()
        ancestors = {path[:size]: root for size in range(len(path))}
        keys = {path + there: mark for there, mark in self.keys.items()}
        return Marked(data, ancestors | values, ancestors | {path: root} | keys, self.faults)


def dotted(path: TreePath) -> str:
    """Return a path as messages write it: `axes.tp.0`."""
    return ".".join(map(str, path))


def merge(base: Marked, over: Marked) -> Marked:
    """Lay `over` on `base`: mappings join key by key, anything else is replaced; marks follow."""
    values, keys = dict(base.values), dict(base.keys)

    def forget(path: TreePath) -> None:
        size = len(path)
        for marks in (values, keys):
            for there in [there for there in marks if there[:size] == path]:
                del marks[there]

    def lay(below: Any, above: Any, path: TreePath) -> Any:
        if isinstance(below, dict) and isinstance(above, dict):
            return below | {
                key: lay(below.get(key), value, (*path, key)) for key, value in above.items()
            }
        forget(path)
        return above

    data = lay(base.data, over.data, ())
    for path, mark in over.values.items():
        values.setdefault(path, mark)
    for path, mark in over.keys.items():
        keys.setdefault(path, mark)
    return Marked(data, values, keys, base.faults + over.faults)
