"""The catalog as plain data: what `dse catalog list` and `show` print."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

from dse.catalog.catalog import Catalog


def list_(catalog: Catalog, kind: str) -> list[dict[str, object]]:
    """One row a record of `kind`: its name, tags, source and file."""
    rows: list[dict[str, object]] = []
    for name in catalog.names(kind):
        record: Any = catalog.record(kind, name)
        rows.append(
            {
                "name": name,
                "tags": list(getattr(record, "tags", ())),
                "source": record.source,
                "file": str(catalog.files[kind][name]),
            }
        )
    return rows


def show(catalog: Catalog, kind: str, name: str) -> dict[str, object]:
    """Every field of one record, in SI, by field name; a model with its derived counts."""
    record: Any = catalog.record(kind, name)
    found: dict[str, object] = plain(record)
    if kind == "model":
        found["n_layers"] = record.n_layers
        found["parameters"] = record.parameters()
        found["active_parameters"] = record.active_parameters()
    return found


def plain(value: Any) -> Any:
    """A record as plain data: fields by name, enumerations by value."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value.value if isinstance(value, Enum) else value
