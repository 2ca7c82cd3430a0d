"""Records as catalog YAML: the text that `read` gives back as the same record."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, cast, get_type_hints

from dse.base.keys import yaml_keys
from dse.base.units import Unit, show, unit_of
from dse.model.model import LayerGroup

_WIDTH: Final = 96
_EXACT: Final = 15
_FOLDED: Final = frozenset({"source", "notes", "conflicts"})
_PLAIN: Final = re.compile(r"[A-Za-z][\w ./@()-]*\Z")
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def to_yaml(record: Any) -> str:
    """The YAML file of a record: one key a line, defaults left out, sources folded."""
    lines = [line for key, value in _entries(record) for line in _block(key, value)]
    return "\n".join(lines) + "\n"


def _block(key: str, value: Any) -> Iterator[str]:
    if key in _FOLDED:
        yield f"{key}: >-"
        yield from textwrap.wrap(
            str(value),
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    elif key == "layers":
        yield from _layers(value)
    elif dataclasses.is_dataclass(value):
        yield f"{key}:"
        for inner, part in _entries(value):
            yield from (f"  {line}" for line in _block(inner, part))
    else:
        yield f"{key}: {_flow(value)}"


def _layers(groups: tuple[LayerGroup, ...]) -> Iterator[str]:
    """A flow sequence in which a group that comes again is an alias of its first place."""
    names: dict[LayerGroup, str] = {}
    repeated = {group for group in groups if groups.count(group) > 1}
    run: list[str] = []
    yield "layers: ["
    for group in groups:
        if group in names:
            run.append(f"*{names[group]},")
            continue
        if run:
            yield from _wrapped(run)
            run = []
        anchor = ""
        if group in repeated:
            names[group] = _anchor(group, names.values())
            anchor = f"&{names[group]} "
        yield from _shape(group, anchor)
    if run:
        yield from _wrapped(run)
    yield "]"


def _shape(group: LayerGroup, anchor: str) -> Iterator[str]:
    parts = [f"{key}: {_flow(part)}," for key, part in _entries(group)]
    lines = [f"  {anchor}{{{parts[0]}"]
    for part in parts[1:]:
        lines += _wrapped([part], "    ")
    lines[-1] = lines[-1].removesuffix(",") + "},"
    yield from lines


def _wrapped(run: list[str], indent: str = "  ") -> list[str]:
    # A key stays beside its value.
    text = " ".join(run).replace(": ", ":\xa0")
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if len(run) > 1 else f"{indent}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


def _anchor(group: LayerGroup, taken: Any) -> str:
    part: Any = group.attention if group.attention.kind != "none" else group.ffn  # type: ignore[attr-defined]
    name = str(getattr(part, "variant", part.kind))
    used = list(taken)
    return name if name not in used else f"{name}{sum(each.startswith(name) for each in used) + 1}"


def _entries(record: Any) -> Iterator[tuple[str, Any]]:
    """(YAML key, value) of each field that differs from its default; quantities as text."""
    keys = yaml_keys(cast("Any", type(record)))
    hints = get_type_hints(type(record), include_extras=True)
    for field in sorted(dataclasses.fields(record), key=lambda field: field.name != "kind"):
        value = getattr(record, field.name)
        if field.name != "kind" and value == _default(field):
            continue
        yield keys[field.name], _quantity(value, hints[field.name])


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _quantity(value: Any, annotation: object) -> Any:
    unit = _unit(annotation)
    if unit is None or value is None:
        return value
    if isinstance(value, Mapping):
        return {key: show(each, unit, _EXACT) for key, each in value.items()}
    return show(value, unit, _EXACT)


def _unit(annotation: object) -> Unit | None:
    found = unit_of(annotation)
    if isinstance(found, Unit):
        return found
    for argument in getattr(annotation, "__args__", ()):
        if (inner := _unit(argument)) is not None:
            return inner
    return None


def _flow(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in _entries(value)) + "}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(part)}" for key, part in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, Enum):
        return _text(str(value.value))
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and abs(value) >= 1e6:
        return f"{value / 1e9:.15g}e9"
    return json.dumps(value)


def _text(value: str) -> str:
    is_plain = _PLAIN.match(value) or re.match(r"\d[\d.]* [A-Za-zµ/]+\Z", value)
    return value if is_plain and value.lower() not in _WORDS else json.dumps(value)
