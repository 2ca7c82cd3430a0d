"""A config that knows which of its keys were read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dse.base.errors import UserError, did_you_mean
from dse.model.hf._ignored import IGNORED


class Config:
    """The keys of one model's text part, those of the whole file behind them.

    Multimodal files nest the language model in `text_config`; what it does not say, such as
    `tie_word_embeddings`, the top level does.
    """

    def __init__(self, data: Mapping[str, Any], place: str) -> None:
        nested = data.get("text_config")
        self.place = place
        self.is_multimodal = isinstance(nested, Mapping)
        self.top = data
        self.text: Mapping[str, Any] = nested if isinstance(nested, Mapping) else data
        self.defaults: Mapping[str, Any] = {}
        self._read: set[str] = set()

    def has(self, *keys: str) -> bool:
        """Whether any of `keys` has a value."""
        return self.get(*keys) is not None

    def get(self, *keys: str, default: Any = None) -> Any:
        """The first value that is not null under any of `keys`, or its class's default where the
        file names none of them: a null is an answer. All of them count as read.
        """
        self._read.update(keys)
        for data in (self.text, self.top):
            for key in keys:
                if data.get(key) is not None:
                    return data[key]
        if any(key in self.text for key in keys):
            return default
        return next((self.defaults[key] for key in keys if key in self.defaults), default)

    def require_stated(self, kind: str, keys: tuple[str, ...]) -> None:
        """A `UserError` that names `keys` where the file has none of them, not even as null."""
        if not any(key in data for data in (self.text, self.top) for key in keys):
            raise self.error(
                f"missing key {' or '.join(map(repr, keys))}, which model type {kind} must state"
            )

    def need(self, *keys: str) -> Any:
        """Like `get`; a `UserError` names the keys if none has a value."""
        value = self.get(*keys)
        if value is None:
            raise self.error(f"missing key {' or '.join(map(repr, keys))}")
        return value

    def count(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """An integer of at least `least` under one of `keys`; `default` where none has a value."""
        value = self.need(*keys) if default is None else self.get(*keys, default=default)
        if default is not None and value == default and not isinstance(value, bool):
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(f"{'/'.join(keys)}: {value!r} is not a count of at least {least}")
        return value

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A boolean under one of `keys`."""
        value = self.get(*keys, default=default)
        if not isinstance(value, bool):
            raise self.error(f"{'/'.join(keys)}: {value!r} is not true or false")
        return value

    def listed(self, *keys: str) -> list[Any]:
        """The list (or the letters of a text) under one of `keys`; empty where none has a value."""
        value = self.get(*keys, default=[])
        if not isinstance(value, list | str):
            raise self.error(f"{'/'.join(keys)}: {value!r} is not a list")
        return list(value)

    def per_layer(self, key: str, n_layers: int) -> list[Any] | None:
        """A list with at least one entry a layer (speculative modules may add some), or None."""
        if self.get(key) is None:
            return None
        found = self.listed(key)
        if len(found) < n_layers:
            raise self.error(f"{key}: needs one entry for each of the {n_layers} layers")
        return found[:n_layers]

    def part(self, key: str) -> Config:
        """The object under `key` as a config of its own; empty where there is none."""
        return self.entry(key, self.get(key, default={}))

    def entry(self, key: str, value: object) -> Config:
        """An object that stands under `key`, as a config of its own."""
        if not isinstance(value, Mapping):
            raise self.error(f"{key}: {value!r} is not an object")
        return Config(value, f"{self.place}: {key}")

    def refuse_unread(self, also_ignored: Iterable[str] = ()) -> None:
        """Raise a `UserError` that names every key that nothing read."""
        known = self._read | IGNORED | set(also_ignored)
        unknown = sorted({*self.text, *(self.top if self.is_multimodal else ())} - known)
        if unknown:
            near = did_you_mean(unknown[0], sorted(self._read))
            keys = "key" if len(unknown) == 1 else "keys"
            raise self.error(
                f"unknown {keys} {', '.join(map(repr, unknown))}{near}",
                "if it changes neither shapes nor bytes, name it in `ignore`",
            )

    def error(self, what: str, remedy: str = "") -> UserError:
        """A `UserError` that names this file."""
        return UserError(f"{self.place}: {what}", remedy)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `Infinity` and `NaN` are let through, as Python writes them."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: is not a JSON object")
    return data
