"""Facts by path: `gpu.hbm`, `fabric.scale_up.bandwidth`, `model.layers`… read, and changed by copy.

A path names YAML keys, so what a catalog file says is what a what-if may vary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from dse.base.errors import SpaceError, did_you_mean
from dse.base.family import Family
from dse.base.keys import yaml_keys
from dse.hardware import GPU, Fabric
from dse.model import Model
from dse.serving.engine import Engine

__all__ = ["ROOTS", "annotation_of", "fact", "scalar_facts", "scalar_type", "with_fact"]

T = TypeVar("T")

ROOTS: Mapping[str, type] = {"gpu": GPU, "fabric": Fabric, "model": Model, "engine": Engine}
"""The record that each path starts in."""


def annotation_of(path: str) -> Any:
    """Return the annotation of the field that `path` names; an unknown part is an error."""
    root, *keys = path.split(".")
    if root not in ROOTS:
        raise SpaceError(f"{path!r} starts with no {', '.join(ROOTS)}{did_you_mean(root, ROOTS)}")
    annotation: Any = ROOTS[root]
    for index, key in enumerate(keys):
        annotation = _step(annotation, key, ".".join([root, *keys[: index + 1]]))
    if not keys or (_record_of(annotation) is not None and not _is_part(annotation)):
        inside = ", ".join(f"{path}.{key}" for key in _fields(_record_of(annotation)))
        raise SpaceError(f"{path!r} is a whole record", f"vary one of {inside}")
    return annotation


def fact(record: object, keys: Iterable[str]) -> Any:
    """Return the fact that `keys` (a path without its root) name in `record`."""
    value: Any = record
    for key in keys:
        value = value[key] if isinstance(value, Mapping) else getattr(value, _field(value, key))
    return value


def with_fact(record: T, keys: tuple[str, ...], value: object) -> T:
    """Return a copy of `record` in which the fact that `keys` name is `value`."""
    first, *rest = keys
    held: Any = record
    if isinstance(held, Mapping):
        inner = with_fact(held[first], tuple(rest), value) if rest else value
        return cast("T", {**held, first: inner})
    name = _field(held, first)
    inner = with_fact(getattr(held, name), tuple(rest), value) if rest else value
    return cast("T", dataclasses.replace(held, **{name: inner}))


def scalar_facts(root: str) -> tuple[str, ...]:
    """Return the paths of the numbers and texts of a root's record, nested records included."""
    return tuple(f"{root}.{path}" for path in _scalars(ROOTS[root]))


def scalar_type(annotation: Any) -> type:
    """Return the plain type of a single value's annotation."""
    plain: type = _plain(annotation)
    return plain


def _scalars(record: type) -> Iterable[str]:
    for key, annotation in _fields(record).items():
        inner = _record_of(annotation)
        if inner is not None:
            yield from (f"{key}.{path}" for path in _scalars(inner))
        elif _plain(annotation) in {int, float, str, bool}:
            yield key


def _step(annotation: Any, key: str, path: str) -> Any:
    """Return the annotation one key further down."""
    record = _record_of(annotation)
    if record is not None:
        fields = _fields(record)
        if key in fields:
            return fields[key]
        hint = did_you_mean(key, fields) or f"; known: {', '.join(fields)}"
        raise SpaceError(f"{path!r} is no fact of {record.__name__}{hint}")
    plain = _plain(annotation)
    if get_origin(plain) in {Mapping, dict} or plain in {Mapping, dict}:
        return get_args(plain)[1]
    raise SpaceError(f"{path!r} goes below a single value")


def _fields(record: type | None) -> dict[str, Any]:
    """Return the annotation of each field of a record by its YAML key."""
    if record is None:
        return {}
    hints = get_type_hints(record, include_extras=True)
    keys = yaml_keys(cast("Hashable", record))
    return {key: hints[name] for name, key in keys.items() if name != "name"}


def _field(record: object, key: str) -> str:
    return next(
        name for name, known in yaml_keys(cast("Hashable", type(record))).items() if known == key
    )


def _record_of(annotation: Any) -> type | None:
    plain = _plain(annotation)
    return plain if isinstance(plain, type) and dataclasses.is_dataclass(plain) else None


def _is_part(annotation: Any) -> bool:
    """Whether a member of a family, which its kind names, is what stands there."""
    return any(isinstance(note, Family) for note in getattr(annotation, "__metadata__", ()))


def _plain(annotation: Any) -> Any:
    """Return an annotation without its metadata and without `None`."""
    if hasattr(annotation, "__metadata__"):
        return _plain(get_args(annotation)[0])
    some = [part for part in get_args(annotation) if part is not type(None)]
    is_optional = len(some) == 1 and len(get_args(annotation)) == 2
    if is_optional and get_origin(annotation) not in {Mapping, dict, tuple, list}:
        return _plain(some[0])
    return annotation
