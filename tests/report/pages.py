"""What a test reads back from a page: the JSON of its script elements."""

import json
from html.parser import HTMLParser
from typing import Any


class _Scripts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        self._inside = given.get("id") if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[self._inside] = self.found.get(self._inside, "") + data


def script(html: str, name: str) -> Any:
    """The data of the script element with this id."""
    parser = _Scripts()
    parser.feed(html)
    return json.loads(parser.found[name])


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    """Every start tag with its attributes."""
    parser = _Scripts()
    parser.feed(html)
    return parser.tags


def dataset(html: str, name: str) -> list[dict[str, Any]]:
    """The rows of one dataset of a page."""
    held = script(html, "data")[name]
    return [dict(zip(held["columns"], row, strict=True)) for row in held["rows"]]
