"""A field that several records may fill, told apart by a key that only one of them has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dse.base.errors import did_you_mean

__all__ = ["Keyed"]

_WORD, _ONE, _LIST = "a word", "one value", "a list"


@dataclass(frozen=True, slots=True)
class Keyed:
    """Reads `{uniform: …}` as the record that `forms` pairs with `uniform`.

    `words` are texts that stand for themselves; `one` and `many` annotate any other single value
    and a list. The schemas are plain data, so that no more of pydantic is needed here than its
    calling this.
    """

    forms: tuple[tuple[str, Any], ...]
    words: tuple[str, ...] = ()
    one: Any = None
    many: Any = None

    def __get_pydantic_core_schema__(self, _source: object, handler: Any) -> Any:
        """Read a word, a value, a list or the mapping whose keys tell the record."""
        choices = {_tag(key): handler.generate_schema(form) for key, form in self.forms}
        if self.words:
            choices[_WORD] = {"type": "literal", "expected": list(self.words)}
        if self.one is not None:
            choices[_ONE] = handler.generate_schema(self.one)
        if self.many is not None:
            choices[_LIST] = handler.generate_schema(self.many)
        return {"type": "tagged-union", "choices": choices, "discriminator": self._told}

    def _told(self, value: object) -> str:
        """Return the tag of what `value` is, or of what it most resembles."""
        keys = [key for key, _ in self.forms]
        if isinstance(value, Mapping):
            exact = [key for key in keys if key in value]
            near = [key for key in keys if any(did_you_mean(str(each), [key]) for each in value)]
            return _tag([*exact, *near, keys[0]][0])
        if isinstance(value, list) and self.many is not None:
            return _LIST
        if self.one is not None and value not in self.words:
            return _ONE
        return _WORD if self.words else _tag(keys[0])


def _tag(key: str) -> str:
    """Return a tag that no key of a file equals, so that it is no step of a fault's path."""
    return f"form {key}"
