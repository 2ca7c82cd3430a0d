"""YAML → Study: overrides laid on, names looked up, conditions parsed, every fault found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from dse.base.errors import Fault, SourceError, StudyError, UserError, did_you_mean
from dse.base.parse import load_tree, resolve_includes, setting
from dse.base.source import build
from dse.base.tree import Marked, TreePath, merge
from dse.catalog import Catalog
from dse.pareto import OBJECTIVES
from dse.serving.arrivals import Trace
from dse.space import Space, load_space
from dse.space.overlay import overlay
from dse.space.where import Where, Words, parse_where
from dse.study.asked import Asked
from dse.study.grammar import ConcurrencyLoad, RateLoad, StudyFile, TraceLoad
from dse.study.price import Price
from dse.study.study import CLOSED_LOOP, CONCURRENCY, MAX_GOODPUT, RATE, TRACE, Study
from dse.study.trace import read_trace
from dse.study.words import column_words, known_columns, result_words

__all__ = ["STUDY_KEYS", "load_study"]

STUDY_KEYS = frozenset({"question", "space", "objectives", "load", "slo", "workload", "search"})
"""Keys of which a study has some, and a space none."""


def load_study(
    path: str | Path,
    catalog: Catalog | None = None,
    *,
    scenario: str | None = None,
    set_: Mapping[str, str] | Sequence[str] = (),
) -> Study:
    """Return the study that the YAML file at `path` declares.

    `scenario` lays the overrides that it names on the file; `set_` then lays single settings
    (`search.method=bound`, or a mapping of such). `catalog` stands below the study's own roots; by
    default it is the shipped one. All faults of the study and of its space are raised together, as
    one `SourceError`.
    """
    file = Path(path)
    tree = resolve_includes(load_tree(file))
    if not isinstance(tree.data, dict):
        raise SourceError([tree.fault((), "a study is a mapping of keys; see `dse schema study`")])
    if tree.data and not STUDY_KEYS & tree.data.keys():
        raise StudyError(
            f"{file} is a space: it says what may vary, and asks nothing",
            f"name it in a study (space: {file.name}), as `dse init` writes one; `dse check` reads "
            "a space as it is",
        )
    settings = dict(set_) if isinstance(set_, Mapping) else _settings(set_)
    merged, space_tree, faults = _merged(tree, file, scenario, settings)
    reader = _Reader(file, merged, space_tree, catalog, faults)
    return reader.study(scenario, settings)


def _settings(items: Sequence[str]) -> dict[str, str]:
    """Return `key=value` texts as a mapping; one that is no setting is a fault."""
    found = {}
    for item in items:
        setting(item)
        name, _, value = item.partition("=")
        found[name] = value
    return found


def _merged(
    tree: Marked, file: Path, scenario: str | None, settings: Mapping[str, str]
) -> tuple[Marked, Marked | None, list[Fault]]:
    """Return the study's tree and its space's, with overrides and settings laid on."""
    faults: list[Fault] = []
    layers = _layers(tree, scenario, faults)
    layers += [setting(f"{name}={value}") for name, value in settings.items()]
    named = tree.data.get("space")
    for layer in layers:
        own = layer.data.get("space") if isinstance(layer.data, dict) else None
        named = own if isinstance(own, str) else named
    space_tree = _space_tree(tree, file, named, faults)
    for layer in layers:
        if not isinstance(layer.data, dict):
            continue
        if isinstance(layer.data.get("space"), dict) and space_tree is not None:
            space_tree = overlay(space_tree, layer.under(("space",)))
        tree = overlay(tree, layer.without("space") if "space" in layer.data else layer)
    return tree, space_tree, faults


def _layers(tree: Marked, scenario: str | None, faults: list[Fault]) -> list[Marked]:
    """Return the overrides of a scenario, in its order; unknown names anywhere are faults."""
    scenarios = tree.data.get("scenarios")
    overrides = tree.data.get("overrides")
    known = overrides if isinstance(overrides, dict) else {}
    chosen: list[Marked] = []
    for name, items in (scenarios if isinstance(scenarios, dict) else {}).items():
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if not isinstance(item, str) or item not in known:
                there: TreePath = ("scenarios", name, index)
                hint = did_you_mean(str(item), known)
                faults.append(tree.fault(there, f"no override {item!r}{hint}"))
            elif name == scenario and isinstance(known[item], dict):
                chosen.append(tree.under(("overrides", item)))
    if scenario is not None and scenario not in (scenarios or {}):
        options = ", ".join(map(str, scenarios or {})) or "none"
        message = f"no scenario {scenario!r}{did_you_mean(scenario, scenarios or {})}"
        raise StudyError(f"{tree.mark().file}: {message}", f"scenarios of the study: {options}")
    return chosen


def _space_tree(tree: Marked, file: Path, named: Any, faults: list[Fault]) -> Marked | None:
    if isinstance(named, dict):
        return tree.under(("space",))
    if not isinstance(named, str):
        return None  # a fault of the study's shape, found when it is built
    path = Path(os.path.normpath(file.parent / named))
    if not path.is_file():
        faults.append(tree.fault(("space",), f"no file {path}"))
        return None
    try:
        return resolve_includes(load_tree(path))
    except SourceError as error:
        faults.extend(error.faults)
        return None


@dataclass(slots=True)
class _Reader:
    """Turns merged trees into a study, collecting what is wrong on the way."""

    file: Path
    tree: Marked
    space_tree: Marked | None
    shipped: Catalog | None
    faults: list[Fault] = field(default_factory=list)

    def study(self, scenario: str | None, settings: Mapping[str, str]) -> Study:
        """Return the study, or raise every fault."""
        fields = self._fields()
        catalog = self._catalog(fields.get("catalog") or ())
        load = fields.get("load")
        space = self._space(catalog, load)
        self._objectives(fields)
        prices = self._prices(fields.get("price") or {}, catalog)
        words = (result_words(space), column_words(space)) if space else ({}, {})
        constraints = self._conditions("constraints", fields, words[0])
        screens = self._conditions("screens", fields, words[1])
        self._compare_by(fields, space)
        self._workload(fields, load, space)
        trace = self._trace(load, space)
        if self.faults or space is None:
            raise SourceError(self.faults)
        return Study(
            name=self.file.stem,
            path=self.file,
            question=fields["question"],
            space=space,
            catalog=catalog,
            asked=Asked(file=fields["workload"], trace=trace),
            load=_load_kind(load),
            objectives=fields["objectives"],
            search=fields["search"],
            slo=fields["slo"],
            constraints=constraints,
            screens=screens,
            target=fields["target"],
            price=prices,
            compare_by=fields["compare_by"],
            scenario=scenario,
            settings=dict(settings),
            document=self._document(),
        )

    def _fields(self) -> dict[str, Any]:
        """Return the study's values by key: all, or those that can be read if some cannot."""
        tree = self.tree
        if isinstance(tree.data.get("space"), dict):
            tree = merge(tree, Marked("in place", {(): tree.mark(("space",))}).nested(("space",)))
        hints = get_type_hints(StudyFile, include_extras=True)
        try:
            file = build(tree, StudyFile)
            return {key: getattr(file, key) for key in hints}
        except SourceError as error:
            self.faults.extend(error.faults)
        found: dict[str, Any] = {}
        for key in tree.data:
            if key in hints:
                try:
                    found[key] = build(tree, hints[key], (key,))
                except SourceError:
                    continue  # already noted above, with its place
        return found

    def _catalog(self, roots: Sequence[str]) -> Catalog:
        if not roots:
            return self.shipped or Catalog.load()
        below = self.shipped.roots[:-1] if self.shipped else ()
        try:
            return Catalog.load(*(self.file.parent / root for root in roots), *below)
        except UserError as error:
            self._wrong(("catalog",), error)
            return self.shipped or Catalog.load()

    def _space(self, catalog: Catalog, load: object) -> Space | None:
        axes: dict[str, tuple[Any, ...]] = {}
        if isinstance(load, ConcurrencyLoad):
            axes = {CONCURRENCY: load.concurrency.values()}
        elif isinstance(load, RateLoad):
            axes = {RATE: load.req_per_s.values()}
        if self.space_tree is None:
            return None
        try:
            return load_space(self.space_tree, catalog, load=axes)
        except SourceError as error:
            self.faults.extend(error.faults)
            return None

    def _objectives(self, fields: Mapping[str, Any]) -> None:
        names = fields.get("objectives")
        if names is None:
            return
        if not names:
            self._wrong(("objectives",), "no objective; name one or more")
        for index, name in enumerate(names):
            there = ("objectives", index)
            if name not in OBJECTIVES:
                hint = did_you_mean(name, OBJECTIVES) or f"; one of {', '.join(OBJECTIVES)}"
                self._wrong(there, f"no objective {name!r}{hint}")
            elif name in names[:index]:
                self._wrong(there, f"{name} is named twice")
            elif "goodput" in name and fields.get("slo") is None:
                self._wrong(there, f"{name} needs an slo")

    def _prices(self, prices: Mapping[str, Price], catalog: Catalog) -> dict[str, Price]:
        found: dict[str, Price] = {}
        for name, price in prices.items():
            try:
                names = catalog.find("gpu", name)
            except UserError as error:
                self._wrong(("price", name), error, key=True)
                continue
            for each in names:
                if each in found:
                    self._wrong(("price", name), f"{each} is priced twice", key=True)
                found[each] = price
        return found

    def _conditions(self, key: str, fields: Mapping[str, Any], words: Words) -> tuple[Where, ...]:
        found: list[Where] = []
        for index, text in enumerate(fields.get(key) or ()):
            if not words:
                break  # the space is at fault, so what its points are called is not known
            try:
                found.append(parse_where(text, words))
            except UserError as error:
                self._wrong((key, index), error)
        return tuple(found)

    def _compare_by(self, fields: Mapping[str, Any], space: Space | None) -> None:
        name = fields.get("compare_by")
        if name is None or space is None:
            return
        columns = list(dict.fromkeys([*known_columns(space), "context"]))
        if name not in columns:
            hint = did_you_mean(name, columns) or f"; one of {', '.join(columns)}"
            self._wrong(("compare_by",), f"{name!r} is no column of every branch{hint}")

    def _workload(self, fields: Mapping[str, Any], load: object, space: Space | None) -> None:
        """Check that load, workload, SLO and the space's batch axis fit one another."""
        workload = fields.get("workload")
        closed = load == CLOSED_LOOP or isinstance(load, ConcurrencyLoad)
        if workload is not None and load is not None:
            if workload.requests is None and not isinstance(load, TraceLoad):
                self._wrong(("workload",), "requests is missing, as requests: 10 x concurrency")
            elif workload.requests and workload.requests.per_concurrency and not closed:
                there = ("workload", "requests")
                self._wrong(there, "this load sets no concurrency; give a count, as 1000")
        if load == MAX_GOODPUT and fields.get("slo") is None:
            self._wrong(("load",), "max_goodput needs an slo")
        for branch in space.branches if space else ():
            has_batch = "batch" in branch.numeric
            if load == CLOSED_LOOP and not has_batch:
                self._wrong(("load",), f"a closed loop needs a batch axis in branch {branch.name}")
            elif load is not None and load != CLOSED_LOOP and has_batch:
                self._wrong(("load",), f"this load leaves no use for batch in branch {branch.name}")

    def _trace(self, load: object, space: Space | None) -> Trace | None:
        """Return the recorded requests of a trace; it brings its own lengths."""
        if not isinstance(load, TraceLoad):
            return None
        for branch in space.branches if space else ():
            if len(branch.contexts) > 1:
                message = f"a trace brings its own lengths; give branch {branch.name} one context"
                self._wrong(("load", "trace"), f"{message}, which walls take as typical")
        try:
            return read_trace(self.file.parent / load.trace)
        except UserError as error:
            self._wrong(("load", "trace"), error)
            return None

    def _document(self) -> dict[str, Any]:
        hidden = ("overrides", "scenarios", "include")
        kept = {key: value for key, value in self.tree.data.items() if key not in hidden}
        return {**kept, "space": self.space_tree.data if self.space_tree else None}

    def _wrong(self, path: TreePath, error: UserError | str, *, key: bool = False) -> None:
        self.faults.append(self.tree.fault(path, str(error), key=key))


def _load_kind(load: object) -> str:
    """Return the study's word for a form of load."""
    if isinstance(load, str):
        return load
    kinds = {ConcurrencyLoad: CONCURRENCY, RateLoad: RATE, TraceLoad: TRACE}
    return kinds[type(load)]
