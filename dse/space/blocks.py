"""Blocks: the space cut by its dimensions, the parts of each cut resolved, its rows one frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dse.catalog import Catalog
from dse.hardware import GPU, DType, Fabric
from dse.model import Model
from dse.serving.deployment import Role
from dse.serving.engine import Engine
from dse.space.facts import ROOTS, with_fact
from dse.space.layouts import Degrees, Lattice, lattice, prefix
from dse.space.options import NONE, UNIFORM, routing_of, speculative_of
from dse.space.precision import precision_of
from dse.space.records import Assignment, Branch, Space
from dse.space.structure import Cell, Parts
from dse.space.words import OPTIONS

__all__ = ["Block", "Blocks"]

# Facts that legality reads: blocks that differ in others share their layouts.
_LEGALITY = ("model.", "engine.", "gpu.peak", "gpu.architecture", "fabric.scale_out.gpus")
# Lattices kept at a time: neighbouring blocks share them, and one may hold a million rows.
_KEPT = 8
_DEGREE_NAMES = ("tp", "dp", "ep", "pp", "cp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """All structures of a branch that share one assignment of its dimensions.

    `constants` are their common cells; `rows` the lattice that satisfies the structural conditions,
    with `_row`, each row's place in the whole lattice. The first one's index is `offset`.
    """

    branch: Branch
    parts: Parts
    constants: Mapping[str, Cell]
    lattice: Lattice
    offset: int

    def rows(self) -> pl.DataFrame:
        """Return the rows that satisfy every condition on structural columns alone."""
        frame = self.lattice.frame.with_row_index("_row")
        if not self.branch.where:
            return frame
        full = self.frame()
        held = [where.expr() for where in self.branch.where if where.columns <= set(full.columns)]
        return full.filter(*held).select(frame.columns)

    def legal(self) -> pl.DataFrame:
        """Return those rows that an engine could start on a filled cluster."""
        roles = self.parts.roles
        unbroken = [pl.col(f"_{role}") == 0 for role in roles]
        return self.rows().filter(*unbroken, pl.col("n_replicas").is_not_null())

    def frame(self) -> pl.DataFrame:
        """Return every row with its common cells and the facts that conditions read."""
        wanted = {name for where in self.branch.where for name in where.columns if "." in name}
        facts = {path: self.parts.fact(path) for path in sorted(wanted - self.constants.keys())}
        cells = {**self.constants, **facts}
        literals = [pl.lit(value).alias(name) for name, value in cells.items()]
        wide = self.lattice.frame.cast(pl.Int64)
        return wide.with_row_index("_row").with_columns(literals)


@dataclass(slots=True)
class Blocks:
    """Cuts a space into blocks in order; records and lattices are made once and shared."""

    space: Space
    catalog: Catalog
    _lattices: dict[object, Lattice] = field(default_factory=dict)
    _records: dict[object, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Block]:
        """Yield every block, branch by branch."""
        offset = 0
        for branch in self.space.branches:
            for assignment in branch.assignments():
                block = self._block(branch, assignment, offset)
                offset += block.lattice.frame.height
                yield block

    def parts(self) -> Iterator[tuple[Mapping[str, Cell], Parts]]:
        """Yield the common cells and the records of every block, its rows left alone."""
        for branch in self.space.branches:
            for assignment in branch.assignments():
                parts = self._parts(branch, assignment)
                yield _constants(branch, assignment, parts), parts

    def _block(self, branch: Branch, assignment: Assignment, offset: int) -> Block:
        parts = self._parts(branch, assignment)
        degrees, n_gpus = _linked(branch, assignment)
        reads = (*_names(assignment), *_legality(assignment), *degrees.values(), n_gpus)
        key = (branch.name, *map(repr, reads))
        if key not in self._lattices:
            if len(self._lattices) >= _KEPT:
                del self._lattices[next(iter(self._lattices))]
            self._lattices[key] = lattice(parts, degrees, n_gpus, branch.split)
        return Block(
            branch=branch,
            parts=parts,
            constants=_constants(branch, assignment, parts),
            lattice=self._lattices[key],
            offset=offset,
        )

    def _parts(self, branch: Branch, assignment: Assignment) -> Parts:
        model = self._record(Model, "model", assignment)
        hardware = {role: self._hardware(role, assignment) for role in branch.roles}
        gpu = [*hardware.values()][-1][0]  # the one that decodes
        weights, kv = DType(str(assignment["weights"])), DType(str(assignment["kv"]))
        return Parts(
            model=model,
            precision=precision_of(model, gpu, weights=weights, kv=kv),
            hardware=hardware,
            speculative=speculative_of(str(assignment.get("speculative", NONE))),
            routing=routing_of(str(assignment.get("routing", UNIFORM))),
        )

    def _hardware(self, role: Role, assignment: Assignment) -> tuple[GPU, Fabric, Engine]:
        gpu: GPU = self._record(GPU, _own(role, "gpu", assignment), assignment)
        fabric_axis = _own(role, "fabric", assignment)
        named = assignment if fabric_axis in assignment else {**assignment, "fabric": gpu.fabric}
        fabric: Fabric = self._record(Fabric, fabric_axis, named)
        engine: Engine = self._record(Engine, _own(role, "engine", assignment), assignment)
        return gpu, fabric, engine

    def _record(self, record: type, axis: str, assignment: Assignment) -> Any:
        """Return the record that an axis names, with the facts that the assignment gives it."""
        kind = axis.rpartition("_")[2]
        facts = {
            path: value
            for path, value in assignment.items()
            if path.partition(".")[0] in {axis, kind} and "." in path
        }
        key = (record, assignment[axis], *facts.items())
        if key not in self._records:
            found = self.catalog.record(kind, str(assignment[axis]))
            for path, value in facts.items():
                found = with_fact(found, tuple(path.split(".")[1:]), value)
            self._records[key] = found
        return self._records[key]


def _own(role: Role, kind: str, assignment: Assignment) -> str:
    """Return the axis that names a role's record: its own, or the one that both share."""
    own = f"{role}_{kind}"
    return own if own in assignment else kind


def _names(assignment: Assignment) -> list[Cell]:
    return [value for name, value in assignment.items() if "." not in name]


def _legality(assignment: Assignment) -> list[tuple[str, Cell]]:
    """Return the facts of an assignment that legality may depend on."""
    plain = {name: name.partition("_")[2] or name for name in assignment if "." in name}
    roots = tuple(f"{root}." for root in ROOTS)
    return [
        (name, assignment[name])
        for name, path in plain.items()
        if name.startswith(_LEGALITY) or (not name.startswith(roots) and path.startswith(_LEGALITY))
    ]


def _linked(
    branch: Branch, assignment: Assignment
) -> tuple[Mapping[Role, Degrees], tuple[int, ...]]:
    """Return the degrees and cluster sizes of a block: the branch's, or what a link fixes."""
    fixed: dict[Role, Degrees] = {}
    for role, degrees in branch.degrees.items():
        values = {
            name: (int(assignment[axis]),)
            if (axis := f"{prefix(role)}{name}") in assignment
            else getattr(degrees, name)
            for name in _DEGREE_NAMES
        }
        fixed[role] = Degrees(**values)
    n_gpus = (int(assignment["n_gpus"]),) if "n_gpus" in assignment else branch.n_gpus
    return fixed, n_gpus


def _constants(branch: Branch, assignment: Assignment, parts: Parts) -> dict[str, Cell]:
    """Return the cells that all rows of a block share, in the order of a row's columns."""
    cells: dict[str, Cell] = {"branch": branch.name, "model": assignment["model"]}
    for kind, place in (("gpu", 0), ("fabric", 1), ("engine", 2)):
        names = {role: _label(role, kind, assignment, parts, place) for role in branch.roles}
        cells[kind] = "+".join(dict.fromkeys(names.values()))
        if f"prefill_{kind}" in assignment or f"decode_{kind}" in assignment:
            cells |= {f"{role}_{kind}": name for role, name in names.items()}
    cells |= {"weights": assignment["weights"], "kv": assignment["kv"]}
    cells |= {name: assignment[name] for name in OPTIONS if name in assignment}
    varied = {path: parts.fact(path) for path in branch.varied()}
    return cells | {path: value for path, value in varied.items() if value is not None}


def _label(role: Role, kind: str, assignment: Assignment, parts: Parts, place: int) -> str:
    axis = _own(role, kind, assignment)
    if axis in assignment:
        return str(assignment[axis])
    gpu = parts.hardware[role][0]
    return gpu.fabric if place == 1 else gpu.name
