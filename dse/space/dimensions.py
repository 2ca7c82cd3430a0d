"""From names, variations and links to dimensions: every catalog name and fact path looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from dse.base.errors import Fault, SourceError, UserError, did_you_mean
from dse.base.source import build
from dse.base.tree import Marked, TreePath
from dse.base.units import unit_of
from dse.catalog import Catalog
from dse.space.axes import Axis, Positive, Value
from dse.space.axes._bounds import LARGEST
from dse.space.facts import ROOTS, annotation_of
from dse.space.grammar import VariedFile
from dse.space.options import dtype_of
from dse.space.records import Assignment, Dimension

__all__ = ["KINDS", "Reader"]

KINDS = {"model": "model", "gpu": "gpu", "fabric": "fabric", "engine": "engine"}
"""The catalog kind that each naming key of a branch (or of a role, with its prefix) stands for."""

_DEGREES = ("tp", "dp", "ep", "pp", "cp")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the parts of one branch's `tree`, collecting what is wrong instead of raising."""

    tree: Marked
    catalog: Catalog
    faults: list[Fault] = field(default_factory=list)

    def wrong(self, path: TreePath, error: UserError | str, *, key: bool = False) -> None:
        """Note a fault at `path`."""
        if isinstance(error, SourceError):
            self.faults.extend(error.faults)
        else:
            self.faults.append(self.tree.fault(path, str(error), key=key))

    def named(
        self, axis: str, items: Sequence[str | VariedFile], path: TreePath
    ) -> Dimension | None:
        """Return the dimension of a naming key: each name it means, and each variation."""
        kind = axis.rpartition("_")[2]
        rows: list[Assignment] = []
        for index, item in enumerate(items):
            there = (*path, index) if isinstance(self.tree.at(path), list) else path
            rows.extend(self._item(axis, kind, item, there))
        distinct = [row for at, row in enumerate(rows) if row not in rows[:at]]
        names = tuple(dict.fromkeys(name for row in distinct for name in row))
        return Dimension(names=names, rows=tuple(distinct)) if distinct else None

    def _item(
        self, axis: str, kind: str, item: str | VariedFile, path: TreePath
    ) -> list[Assignment]:
        if isinstance(item, str):
            return [{axis: name} for name in self._names(kind, item, path)]
        base = self._names(kind, item.base, (*path, "base"))
        if len(base) > 1:
            self.wrong((*path, "base"), f"{item.base!r} names several; vary one at a time")
        axes = {
            f"{axis}.{key}": self._fact_axis(kind, key, varied, (*path, "vary", key))
            for key, varied in item.vary.items()
        }
        if not base or not all(axes.values()):
            return []
        return [
            {axis: base[0], **dict(zip(axes, values, strict=True))}
            for values in product(*axes.values())
        ]

    def _names(self, kind: str, name: str, path: TreePath) -> tuple[str, ...]:
        """Return the canonical names that a name, glob or tag means."""
        try:
            if kind == "engine" and "*" not in name:
                return (self.catalog.engine(name).label,)
            if name.endswith((".json", ".yaml", ".yml")):
                self.catalog.record(kind, name)
                return (name,)
            return self.catalog.find(kind, name)
        except UserError as error:
            self.wrong(path, error)
            return ()

    def _fact_axis(self, kind: str, key: str, axis: Axis, path: TreePath) -> tuple[Value, ...]:
        """Return the values that a fact takes, read as its field is."""
        fact = f"{kind}.{key}"
        try:
            annotation = annotation_of(fact)
        except UserError as error:
            self.wrong(path, error, key=True)
            return ()
        unit = unit_of(annotation)
        if unit is None:
            return self._fact_values(annotation, path, axis.values())
        try:
            return self._countable(axis.read(unit.read).values(), path)
        except UserError as error:
            self.wrong(path, error)
            return ()

    def _fact_values(
        self, annotation: object, path: TreePath, values: Sequence[Value]
    ) -> tuple[Value, ...]:
        try:
            listed = Marked([*values], {(): self.tree.mark(path)})
            read = tuple(build(listed, tuple[annotation, ...]))  # type: ignore[valid-type]
        except UserError as error:
            self.wrong(path, error)
            return ()
        return self._countable(read, path)

    def _countable(self, values: tuple[Value, ...], path: TreePath) -> tuple[Value, ...]:
        """Return the values if no count among them is beyond what columns hold."""
        if any(isinstance(value, int) and abs(value) > LARGEST for value in values):
            self.wrong(path, f"a count is above {LARGEST:.0e}")
            return ()
        return values

    def linked(
        self, link: Mapping[str, Sequence[Value]], path: TreePath, roles: Sequence[str]
    ) -> Dimension | None:
        """Return the dimension of axes that move together; their lists must be equally long."""
        lengths = {key: len(values) for key, values in link.items()}
        if not link or len(set(lengths.values())) != 1 or not min(lengths.values()):
            found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            self.wrong(path, f"linked lists need one length of 1 or more: {found or 'none given'}")
            return None
        columns: dict[str, tuple[Value, ...]] = {}
        for key, values in link.items():
            name, read = self._linked_axis(key, values, (*path, key), roles)
            if not read:
                return None
            columns[name] = read
        rows = zip(*columns.values(), strict=True)
        return Dimension(
            names=tuple(columns), rows=tuple(dict(zip(columns, row, strict=True)) for row in rows)
        )

    def _linked_axis(
        self, key: str, values: Sequence[Value], path: TreePath, roles: Sequence[str]
    ) -> tuple[str, tuple[Value, ...]]:
        """Return the axis that a link's key names, and its values read."""
        axes = _linkable(roles)
        if key in axes:
            return axes[key], self._axis_values(axes[key], values, path)
        if key.partition(".")[0] in ROOTS:
            try:
                return key, self._fact_values(annotation_of(key), path, values)
            except UserError as error:
                self.wrong(path, error, key=True)
                return key, ()
        hint = did_you_mean(key, axes) or f"; an axis ({', '.join(axes)}) or the path of a fact"
        self.wrong(path, f"{key!r} cannot be linked{hint}", key=True)
        return key, ()

    def _axis_values(self, axis: str, values: Sequence[Value], path: TreePath) -> tuple[Value, ...]:
        read: list[Value] = []
        for index, value in enumerate(values):
            there = (*path, index)
            if axis.rpartition("_")[2] in KINDS:
                names = self._names(axis.rpartition("_")[2], str(value), there)
                if len(names) > 1:
                    self.wrong(there, f"{value!r} names several; a link needs one")
                read.extend(names[:1])
                continue
            try:
                read.append(dtype_of(str(value)) if axis in {"weights", "kv"} else _count(value))
            except UserError as error:
                self.wrong(there, error)
        return tuple(read) if len(read) == len(values) else ()


def _linkable(roles: Sequence[str]) -> dict[str, str]:
    """Return the axes that a link may name, as a file writes them, with the name they have here."""
    axes = {**{kind: kind for kind in KINDS}, "n_gpus": "n_gpus"}
    axes |= {f"precision.{part}": part for part in ("weights", "kv")}
    for role in roles:
        before, inside = ("", "") if role == "both" else (f"{role}_", f"{role}.")
        axes |= {f"{inside}layout.{name}": f"{before}{name}" for name in _DEGREES}
        if before:
            axes |= {f"{inside}{kind}": f"{before}{kind}" for kind in ("gpu", "fabric", "engine")}
    return axes


def _count(value: object) -> int:
    unit = unit_of(Positive)
    assert unit is not None
    return int(unit.read(value))
