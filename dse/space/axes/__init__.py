"""The forms that an axis may take, recognised by their keys: a list, or a mapping such as
`{powers_of: 2, to: 16}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from dse.base.errors import did_you_mean
from dse.base.family import Family
from dse.base.units import unit_of
from dse.space.axes._base import Axis, Value
from dse.space.axes._bounds import Positive
from dse.space.axes.choice import Choice

__all__ = ["AXES", "Axis", "Choice", "Forms", "Numbers", "Positive", "Quantities", "Value"]

AXES = Family(__name__, Axis)

_LIST, _ONE, _WORD = "a list", "one value", "a word"


@dataclass(frozen=True, slots=True)
class Forms:
    """Reads a field as an axis; `unit` (a field annotation) reads each value where one is given.

    `words` are texts, such as `auto`, that stand for themselves and not for an axis; an axis of
    names has no `ranges`. The schemas are plain data, so that no more of pydantic is needed here
    than its calling this.
    """

    unit: object = None
    words: tuple[str, ...] = ()
    ranges: bool = True

    def __get_pydantic_core_schema__(self, _source: object, handler: Any) -> Any:
        """Read a value, a list, or the mapping whose keys tell the form."""
        item = handler.generate_schema(self.unit if self.unit is not None else Value)
        forms = {
            _tag(kind): _after(handler.generate_schema(form), self._ranged)
            for kind, form in AXES.items()
            if form.key() and self.ranges
        }
        listed = {"type": "list", "items_schema": item}
        choices = {**forms, _LIST: _after(listed, _chosen), _ONE: _after(item, _single)}
        if self.words:
            choices[_WORD] = {"type": "literal", "expected": list(self.words)}
        return {"type": "tagged-union", "choices": choices, "discriminator": self._tag}

    def _tag(self, value: object) -> str:
        if isinstance(value, str) and value in self.words:
            return _WORD
        return _form(value) if self.ranges or isinstance(value, list) else _ONE

    def _ranged(self, axis: Axis) -> Axis:
        unit = unit_of(self.unit)
        return axis.read(unit.read) if unit else axis


Numbers = Annotated[Axis, Forms(Positive)]
"""An axis of counts, each 1 or more."""

Quantities = Annotated[Axis, Forms()]
"""An axis whose values are read later, when the unit is known."""


def _form(value: object) -> str:
    """Return the tag of the form that a YAML value has."""
    if not isinstance(value, Mapping):
        return _LIST if isinstance(value, list) else _ONE
    keys = {form.key(): kind for kind, form in AXES.items() if form.key()}
    exact = [kind for key, kind in keys.items() if key in value]
    # A mapping of no known form is read as the one that it most resembles, for the fault's sake.
    near = [kind for key, kind in keys.items() if any(did_you_mean(str(k), [key]) for k in value)]
    return _tag([*exact, *near, "span"][0])


def _tag(kind: str) -> str:
    """Return a tag that no key of a file equals, so that it is no step of a fault's path."""
    return f"form {kind}"


def _after(schema: Any, function: Any) -> Any:
    return {
        "type": "function-after",
        "schema": schema,
        "function": {"type": "no-info", "function": function},
    }


def _chosen(values: list[Value]) -> Axis:
    return Choice(of=tuple(values)).read(_as_it_is)


def _single(value: Value) -> Axis:
    return Choice(of=(value,)).read(_as_it_is)


def _as_it_is(value: object) -> Value:
    assert isinstance(value, str | int | float)
    return value
