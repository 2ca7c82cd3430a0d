"""Canonical text and stable ids: what is equal reads equal, on every machine, in every process."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b

__all__ = ["canonical", "digest"]


def canonical(value: object) -> str:
    """Return the canonical JSON text of plain data and records.

    A record is its class's name and its fields by name; fields declared with `compare=False`
    (names, sources, notes) are left out, so that equal records read equal. Mappings and sets are
    sorted, lists and tuples agree, and so do 8 and 8.0. NaN has no canonical text (`ValueError`),
    nor has an object that is no data (`TypeError`).
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Enum):
        return canonical(value.value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, int | float):
        return _number(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.compare]
        return _object(
            {"": type(value).__name__, **{name: getattr(value, name) for name in fields}}
        )
    if isinstance(value, Mapping):
        return _object(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, set | frozenset):
        return f"[{','.join(sorted(map(canonical, value)))}]"
    raise TypeError(f"no canonical text for {type(value).__name__} {value!r}")


def digest(value: object, size: int = 16) -> str:
    """Return the blake2b digest, `size` bytes as hexadecimal, of a text or a canonical text."""
    text = value if isinstance(value, str) else canonical(value)
    return blake2b(text.encode(), digest_size=size).hexdigest()


def _object(mapping: Mapping[object, object] | Mapping[str, object]) -> str:
    members = sorted((_member_name(key), canonical(value)) for key, value in mapping.items())
    return "{" + ",".join(f"{key}:{value}" for key, value in members) + "}"


def _member_name(key: object) -> str:
    text = canonical(key)
    return text if text.startswith('"') else json.dumps(text)


def _number(value: float) -> str:
    """Write an integral float as the integer it equals, any other by its shortest exact text."""
    if isinstance(value, float) and not value.is_integer():
        if math.isnan(value):
            raise ValueError("NaN has no canonical text")
        return repr(value) if math.isfinite(value) else json.dumps(f"{value}")
    return str(int(value))
