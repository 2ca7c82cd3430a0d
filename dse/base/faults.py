"""What pydantic found wrong with a tree, in our words and with its place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails, ValidationError

from dse.base.errors import Fault, SourceError, did_you_mean
from dse.base.tree import Marked, TreePath

__all__ = ["Owners", "faults_of"]

Owners = dict[int, set[str]]
"""The keys that the records tried on a mapping know, by the mapping's `id`."""

_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})
_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument", "invalid_key"})
_NEEDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys to values",
    "mapping_type": "a mapping of keys to values",
    "dataclass_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
}


@dataclass(frozen=True, slots=True)
class _Found:
    path: TreePath
    message: str
    at_key: bool
    is_type_error: bool


def faults_of(error: ValidationError, tree: Marked, path: TreePath, owners: Owners) -> list[Fault]:
    """Return every fault of `error`, which arose while the part of `tree` at `path` was read."""
    found: dict[tuple[TreePath, bool], list[_Found]] = {}
    faults: list[Fault] = []
    for detail in error.errors(include_url=False):
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, SourceError):
            faults.extend(cause.faults)
            continue
        item = _found(detail, tree, path, owners)
        found.setdefault((item.path, item.at_key), []).append(item)
    paths = [there for there, _ in found]
    for (there, at_key), items in found.items():
        if _is_other_branch(there, items, paths):
            continue
        message = "; or ".join(dict.fromkeys(item.message for item in items))
        faults.append(tree.fault(there, message, key=at_key))
    return faults


def _is_other_branch(path: TreePath, items: list[_Found], found: Iterable[TreePath]) -> bool:
    """Say whether only wrong branches of a union failed at `path`: the right one failed deeper."""
    deeper = any(len(there) > len(path) and there[: len(path)] == path for there in found)
    return deeper and all(item.is_type_error for item in items)


def _found(detail: ErrorDetails, tree: Marked, base: TreePath, owners: Owners) -> _Found:
    kind = detail["type"]
    path, parent = base, tree.at(base)
    data: Any = parent
    steps: tuple[Any, ...] = detail["loc"]
    if kind == "invalid_key":  # a key that is no text, of which `loc` has only the text
        steps = (*steps[:-1], detail["input"])
    for step in steps:
        if _has(data, step):
            parent, data, path = data, data[step], (*path, step)
        # Any other step is the tag of a part or the label of a union's branch: no place in a file.
    if kind in _MISSING:
        return _Found((*path, detail["loc"][-1]), "required key is missing", False, False)
    if kind in _UNKNOWN:
        known = owners.get(id(parent), set())
        open_keys = known.difference(parent if isinstance(parent, dict) else ())
        hint = did_you_mean(str(path[-1]), open_keys) or f"; known: {', '.join(sorted(known))}"
        return _Found(path, f"unknown key{hint}", True, False)
    return _Found(path, _words(detail), detail["loc"][-1:] == ("[key]",), kind in _NEEDS)


def _has(data: object, step: object) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(data)
    return isinstance(data, dict) and step in data


def _words(detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail["input"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    if kind in _NEEDS:
        return f"needs {_NEEDS[kind]}, not {_shown(value)}"
    if kind == "union_tag_invalid":
        tags = _quoted(context["expected_tags"])
        return f"no kind {context['tag']!r}{_one_of(str(context['tag']), tags)}"
    if kind in {"literal_error", "enum"}:
        return f"{_shown(value)} is not allowed{_one_of(str(value), _quoted(context['expected']))}"
    if "error" in context:
        return str(context["error"])
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _one_of(word: str, options: list[str]) -> str:
    return did_you_mean(word, options) or f"; one of {', '.join(options)}"


def _quoted(expected: str) -> list[str]:
    return re.findall(r"'([^']*)'", expected) or [expected]


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)
