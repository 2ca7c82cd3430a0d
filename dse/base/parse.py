"""YAML text → marked tree, by the scalar rules of YAML 1.2.

`1e3` is a number, `on` and `2026-01-01` are text, `010` is ten; a duplicate key is a fault, where
PyYAML would let the last one win.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from dse.base.errors import Fault, SourceError
from dse.base.tree import Mark, Marked, TreePath, dotted, merge

__all__ = ["load_tree", "parse_tree", "resolve_includes", "setting"]

_TAG = "tag:yaml.org,2002:"
_MAX_DIGITS = 400  # more than the largest float has
_MAX_VALUES = 500_000  # a few nested aliases can unfold to more than any memory holds


def load_tree(path: str | Path) -> Marked:
    """Parse the YAML file at `path`; a file that is missing or no YAML is a `SourceError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(
            [Fault(str(path), 1, 1, "", f"cannot be read: {error.strerror}")]
        ) from error
    except UnicodeDecodeError as error:
        raise SourceError(
            [Fault(str(path), 1, 1, "", f"is not UTF-8 text: {error.reason}")]
        ) from error
    return parse_tree(text, str(path))


def parse_tree(text: str, name: str) -> Marked:
    """Parse YAML text; `name` stands for the file in its marks."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        builder = _Builder(name, loader)
        data = builder.build(node, ()) if node is not None else None
        return Marked(data, builder.values, builder.keys, tuple(builder.faults))
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        line, column = (at.line + 1, at.column + 1) if at else (1, 1)
        raise SourceError([Fault(name, line, column, "", _syntax(error))]) from error
    except yaml.YAMLError as error:
        message = " ".join(str(error).split("\n")[0].split())
        raise SourceError([Fault(name, 1, 1, "", f"is not YAML: {message}")]) from error
    finally:
        loader.dispose()


def resolve_includes(tree: Marked, _open: tuple[Path, ...] = ()) -> Marked:
    """Lay `tree` on the files that its top-level `include: FILE` or `include: [FILE, …]` names.

    Paths are relative to the including file; later files and the tree itself win. A file that
    includes itself, directly or not, is a fault.
    """
    if not (isinstance(tree.data, dict) and "include" in tree.data):
        return tree
    named = tree.data["include"]
    files = named if isinstance(named, list) else [named]
    here = Path(tree.mark().file)
    opened = _open or (here.resolve(),)
    below = Marked({}, {})
    for index, name in enumerate(files):
        at: TreePath = ("include", index) if isinstance(named, list) else ("include",)
        if not isinstance(name, str):
            raise SourceError([tree.fault(at, f"{name!r} is not the name of a file")])
        file = here.parent / name
        if file.resolve() in opened:
            raise SourceError([tree.fault(at, f"circular include of {name}")])
        if not file.is_file():
            raise SourceError([tree.fault(at, f"no file {file}")])
        included = resolve_includes(load_tree(file), (*opened, file.resolve()))
        below = merge(below, included)
    return merge(below, tree.without("include"))


def setting(text: str) -> Marked:
    """Parse an override such as `search.method=bound` into a tree to lay on a file's."""
    name, equals, value = text.partition("=")
    if not equals or not all(name.split(".")):
        message = f"{text!r} is not a setting, as in search.method=bound"
        raise SourceError([Fault("--set", 1, 1, "", message)])
    return parse_tree(value, f"--set {text}").nested(tuple(name.split(".")))


class _Loader(yaml.CSafeLoader):
    """PyYAML's fast parser with the scalar rules of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _kind, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(rf"(?:{_pattern})\Z"), list(_first))


class _Builder:
    """Turns composed nodes into data while noting where each stood."""

    def __init__(self, name: str, loader: _Loader) -> None:
        self.name = name
        self.loader = loader
        self.values: dict[TreePath, Mark] = {(): Mark(name, 1, 1)}
        self.keys: dict[TreePath, Mark] = {}
        self.faults: list[Fault] = []
        self.open: set[int] = set()

    def build(self, node: yaml.Node, path: TreePath) -> Any:
        """Return the data of `node`, which stands at `path`."""
        self.values[path] = self._mark(node)
        if len(self.values) > _MAX_VALUES:
            raise yaml.YAMLError(f"its aliases unfold to more than {_MAX_VALUES:,} values")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self.open:
            self._fault(node, path, "an alias that contains itself")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self.open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: TreePath) -> dict[object, Any]:
        data: dict[object, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, path, "a key must be plain text")
                continue
            key = self._scalar(key_node, path)
            there = (*path, key)
            if key in data:
                first = self.keys[there]
                self._fault(key_node, there, f"duplicate key, first on line {first.line}")
                continue
            self.keys[there] = self._mark(key_node)
            data[key] = self.build(value_node, there)
        return data

    def _scalar(self, node: yaml.ScalarNode, path: TreePath) -> object:
        text, kind = node.value, node.tag.removeprefix(_TAG)
        if kind == "int":
            if len(text) > _MAX_DIGITS:
                self._fault(node, path, f"a number of {len(text)} digits")
                return 0
            return int(text)
        if kind == "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if kind == "bool":
            return text.lower() == "true"
        if kind == "null":
            return None
        if kind != "str":
            self._fault(node, path, f"the tag {node.tag} is not supported")
        return text

    def _mark(self, node: yaml.Node) -> Mark:
        return Mark(self.name, node.start_mark.line + 1, node.start_mark.column + 1)

    def _fault(self, node: yaml.Node, path: TreePath, message: str) -> None:
        mark = self._mark(node)
        self.faults.append(Fault(mark.file, mark.line, mark.column, dotted(path), message))


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if "alias" in problem:
        return f"{problem}; a leading `*` starts an alias, so quote a glob: '*-sxm'"
    return f"is not YAML: {problem}"
