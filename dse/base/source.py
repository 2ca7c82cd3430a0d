"""YAML → frozen dataclass: the only place where files, units and faults meet.

The records stay plain dataclasses. pydantic derives their schema, which is tightened here: unknown
keys are faults, scalars are never coerced, and each field answers to its YAML key (`yaml_keys`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, SchemaValidator, ValidationError, core_schema

from dse.base.errors import SourceError
from dse.base.faults import Owners, faults_of
from dse.base.keys import units_in_keys, yaml_keys
from dse.base.parse import load_tree, parse_tree, resolve_includes
from dse.base.tree import Marked, TreePath
from dse.base.units import Unit

__all__ = ["build", "read", "read_text", "schema"]

T = TypeVar("T")
_OWNERS = "dse.base.source.owners"
_SCALARS = frozenset({"bool", "float", "int", "str"})


def read(path: str | Path, record: type[T], *, context: Mapping[str, object] | None = None) -> T:
    """Read the YAML file at `path`, its includes resolved, as a `record`.

    All of the file's faults are raised together, as one `SourceError`. `context` reaches validators
    that a record's fields declare.
    """
    return build(resolve_includes(load_tree(path)), record, context=context)


def read_text(
    text: str, record: type[T], name: str = "<text>", *, context: Mapping[str, object] | None = None
) -> T:
    """Read YAML text as a `record`; `name` stands for the file in faults."""
    return build(resolve_includes(parse_tree(text, name)), record, context=context)


def build(
    tree: Marked,
    record: type[T],
    path: TreePath = (),
    *,
    context: Mapping[str, object] | None = None,
) -> T:
    """Return the part of `tree` at `path` as a `record`, or raise all of its faults at once.

    `record` is a dataclass or any type that pydantic reads. A `ValueError` that a `__post_init__`
    raises becomes a fault at the mapping it was built from.
    """
    owners: Owners = {}
    try:
        value = _validator(cast("Hashable", record)).validate_python(
            tree.at(path), context={**(context or {}), _OWNERS: owners}
        )
    except ValidationError as error:
        raise SourceError([*tree.faults, *faults_of(error, tree, path, owners)]) from error
    if tree.faults:
        raise SourceError(tree.faults)
    return cast("T", value)


def schema(record: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a record's YAML, for editors and checkers."""
    return _ClosedJsonSchema().generate(_core_schema(record), mode="validation")


class _ClosedJsonSchema(GenerateJsonSchema):
    """JSON Schema in which a record allows no key that it does not know."""

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> dict[str, Any]:
        """Close the object that a dataclass is read from."""
        return {**super().dataclass_args_schema(schema), "additionalProperties": False}


@cache
def _validator(record: Hashable) -> SchemaValidator:
    return SchemaValidator(_core_schema(record))


def _core_schema(record: Any) -> CoreSchema:
    return cast("CoreSchema", _tightened(TypeAdapter(record).core_schema))


def _tightened(node: Any) -> Any:
    """Return a copy of a pydantic schema that forbids unknown keys, coercion and infinity."""
    if isinstance(node, list | tuple):
        return type(node)(map(_tightened, node))
    if not isinstance(node, dict):
        return node
    copy = {
        key: value if key in {"default", "metadata"} else _tightened(value)
        for key, value in node.items()
    }
    kind = copy.get("type")
    if kind in _SCALARS:
        copy["strict"] = True
    if kind == "float":
        copy["allow_inf_nan"] = False
    if kind == "typed-dict":
        copy["extra_behavior"] = "forbid"
    if kind == "dataclass":
        return _keyed(copy)
    return copy


def _keyed(node: dict[str, Any]) -> Any:
    """Let a dataclass answer to its YAML keys and note them for the did-you-mean of a fault."""
    keys, units = yaml_keys(node["cls"]), units_in_keys(node["cls"])
    arguments = node["schema"]
    while arguments["type"] != "dataclass-args":
        arguments = arguments["schema"]
    arguments["extra_behavior"] = "forbid"
    for field in arguments["fields"]:
        name = field["name"]
        if name in keys:
            field["validation_alias"] = keys[name]
        if name in units:
            holder = field["schema"] if field["schema"]["type"] == "default" else field
            holder["schema"] = core_schema.no_info_before_validator_function(
                partial(_with_unit, units[name]), holder["schema"]
            )
    ref = node.pop("ref", None)
    note = partial(_note_owner, frozenset(keys.values()))
    return core_schema.with_info_before_validator_function(note, cast("CoreSchema", node), ref=ref)


def _with_unit(unit: Unit, value: object) -> object:
    """Add the unit that the key names to each bare number."""
    if isinstance(value, list):
        return [_with_unit(unit, item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value!r} {unit.symbol}"
    return value


def _note_owner(
    keys: frozenset[str], value: object, info: core_schema.ValidationInfo[Any]
) -> object:
    if isinstance(value, dict):
        info.context[_OWNERS].setdefault(id(value), set()).update(keys)
    return value
