"""The reference of the YAML that users write, made from the records that read it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dse.base.source import schema
from dse.hardware import GPU, Fabric
from dse.model import Model
from dse.serving.engine import Engine
from dse.space.grammar import SpaceFile
from dse.space.where import FUNCTIONS
from dse.study.grammar import StudyFile

__all__ = ["RECORDS", "reference"]

RECORDS: Mapping[str, type] = {
    "space": SpaceFile,
    "study": StudyFile,
    "gpu": GPU,
    "model": Model,
    "fabric": Fabric,
    "engine": Engine,
}
"""The record that each kind of file is read into."""

_HEAD = """\
# YAML reference

Made by `dse schema --markdown` from the records that read the files; `docs/spaces-and-studies.md`
explains them. A quantity carries its unit (`80 GB`, `25 ms`, `2.10 USD/h`); a count may be written
`8192`, `8Ki` (8,192) or `8k` (8,000); a share `0.9` or `90%`. An axis is a value, a list, or one of
the forms *Log*, *Powers* and *Span* below.
"""


def reference() -> str:
    """Return the reference page of spaces and studies, as Markdown."""
    study = schema(StudyFile)
    definitions: dict[str, Any] = {"StudyFile": study, **study["$defs"]}
    order = ["StudyFile", "SpaceFile", "BranchFile"]
    rest = sorted(name for name in definitions if name not in order)
    sections = [_section(name, definitions[name]) for name in [*order, *rest]]
    functions = ", ".join(f"`{name}`" for name in sorted(FUNCTIONS))
    tail = f"## Conditions\n\nFunctions that a condition may call: {functions}.\n"
    return "\n".join([_HEAD, *(section for section in sections if section), tail])


def _section(name: str, definition: Mapping[str, Any]) -> str:
    properties = definition.get("properties")
    if not properties:
        return ""
    required = set(definition.get("required", ()))
    rows = [
        f"| `{key}` | {_form(each)} | {_default(key, each, required)} |"
        for key, each in properties.items()
        if key != "kind"
    ]
    title = name.removesuffix("File").lstrip("_")
    text = " ".join(str(definition.get("description", "")).split())
    head = f"## {title}\n\n{text}\n\n| key | form | default |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _form(each: Mapping[str, Any]) -> str:
    """Return what a value looks like, in a table's cell."""
    found = dict.fromkeys(_forms(each))
    if found.keys() >= _RANGES:
        values = [form for form in found if form not in _RANGES and not form.startswith("list of")]
        return f"axis of ({' or '.join(values)})"
    return " or ".join(found)


def _forms(each: Mapping[str, Any]) -> Iterator[str]:
    for options in ("anyOf", "oneOf"):
        for option in each.get(options, ()):
            yield from _forms(option)
    if "$ref" in each:
        yield _link(each["$ref"].rpartition("/")[2])
    elif "enum" in each or "const" in each:
        yield from (f"`{value}`" for value in each.get("enum", [each.get("const")]))
    elif each.get("type") == "array":
        items = each.get("items") or (each.get("prefixItems") or [{}])[0]
        yield f"list of ({_form(items)})" if items else "list"
    elif each.get("type") == "object":
        values = each.get("additionalProperties")
        inner = f" to ({_form(values)})" if isinstance(values, dict) and values else ""
        yield f"mapping of names{inner}"
    elif "type" in each and each["type"] != "null":
        examples = each.get("examples")
        yield f"`{examples[0]}`" if examples else str(each["type"])


def _link(name: str) -> str:
    title = name.removesuffix("File").lstrip("_")
    return f"[{title}](#{title.lower()})"


_RANGES = {_link(name) for name in ("Log", "Powers", "Span")}


def _default(key: str, each: Mapping[str, Any], required: set[str]) -> str:
    if key in required:
        return "required"
    default = each.get("default")
    if isinstance(default, dict) and default.get("kind") == "choice":
        default = default["of"][0]
    return "" if default in (None, [], {}, "") else f"`{json.dumps(default)}`"
