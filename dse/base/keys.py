"""Which YAML key fills which field: the field's name without its unit, or what `Key` says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import get_args, get_type_hints

from dse.base.errors import DseError
from dse.base.units import Unit, unit_of

__all__ = ["Key", "units_in_keys", "yaml_keys"]


@dataclass(frozen=True, slots=True)
class Key:
    """Metadata of a field whose YAML key is not its name without the unit.

    `hbm_bytes_per_s: Annotated[BytesPerSecond, Key("hbm_bandwidth")]` leaves `hbm` to `hbm_bytes`.
    """

    name: str


@cache
def yaml_keys(record: type) -> Mapping[str, str]:
    """Return the YAML key of each field that a dataclass is built from, by field name.

    A field that carries a unit loses the unit's suffix (`window_tokens: Tokens` is `window`),
    unless the suffix is all of its name (`req_per_s`); every other field keeps its name.
    """
    hints = get_type_hints(record, include_extras=True)
    keys = {
        field.name: _key(field.name, hints[field.name])
        for field in dataclasses.fields(record)
        if field.init
    }
    taken: dict[str, str] = {}
    for name, key in keys.items():
        if key in taken:
            raise DseError(
                f"{record.__module__}.{record.__name__}: {taken[key]} and {name} both read {key}",
                "give one of them a Key",
            )
        taken[key] = name
    return MappingProxyType(keys)


@cache
def units_in_keys(record: type) -> Mapping[str, Unit]:
    """Return, by field name, the unit that a field's YAML key itself ends in.

    `req_per_s: 200` says its unit, so such a key takes a bare number as well as a quantity.
    """
    hints = get_type_hints(record, include_extras=True)
    return {
        name: unit
        for name, key in yaml_keys(record).items()
        for unit in map(unit_of, _parts(hints[name]))
        if isinstance(unit, Unit) and f"_{key}".endswith(f"_{unit.suffix}")
    }


def _key(name: str, annotation: object) -> str:
    suffixes = []
    for part in _parts(annotation):
        if isinstance(part, Key):
            return part.name
        if unit := unit_of(part):
            suffixes.append(unit.suffix)
    fitting = [suffix for suffix in suffixes if suffix and name.endswith(f"_{suffix}")]
    longest = max(fitting, key=len, default="")
    return name.removesuffix(f"_{longest}") if longest else name


def _parts(annotation: object) -> Iterator[object]:
    """Yield an annotation's metadata and those of its arguments, outermost first."""
    yield from getattr(annotation, "__metadata__", ())
    for argument in get_args(annotation):
        yield from _parts(argument)
