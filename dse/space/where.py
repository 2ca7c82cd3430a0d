"""Conditions in YAML: `tp * pp <= 16` becomes a polars expression, its names and functions checked.

SQL's own parser does the parsing (`polars.sql_expr`); what is here is the list of what may be said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from polars.datatypes import DataTypeClass

from dse.base.errors import SpaceError, did_you_mean
from dse.base.units import replace_quantities

__all__ = ["FUNCTIONS", "Where", "Words", "parse_where"]

DType = pl.DataType | DataTypeClass
Words = Mapping[str, tuple[str, DType]]
"""What a condition may name: the word, and the column and its type that it stands for."""

FUNCTIONS = frozenset(
    """
    abs ceil coalesce div ends_with exp floor greatest if least ln log10 log2 lower mod nullif pow
    round sign sqrt starts_with upper
    """.split()  # noqa: SIM905
)
"""What a condition may call: functions of one row."""

_KEYWORDS = frozenset(
    """
    and between case else end false ilike in is like not null or then true when xor
    """.split()  # noqa: SIM905
)
_FORBIDDEN = {
    '"': "use single quotes for text",
    "`": "write names without quotes",
    ";": "give one condition an item of the list",
    "--": "write comments as YAML comments",
    "/*": "write comments as YAML comments",
}
_TEXT = re.compile(r"'[^']*'")
_WORD = re.compile(r"(?<![\w.'])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?P<call>\s*\()?")
_DECIMAL = re.compile(r"(?<![\w.])(\d+\.\d*|\.\d+)(?![\w.])")
_COMPARISONS = frozenset({"Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """One condition: its `text` in the file, the `sql` on columns, and the `columns` it reads."""

    text: str
    sql: str
    columns: frozenset[str]

    def expr(self) -> pl.Expr:
        """Return the condition as a Boolean expression, false where a value is missing."""
        return pl.sql_expr(self.sql).fill_null(value=False)


def parse_where(text: str, words: Words) -> Where:
    """Return the condition that `text` states on `words`; whatever else it says is a `SpaceError`.

    Quantities (`90 GB`, `8Ki`) are read in SI. An alias, an aggregate, a chained comparison, an
    unknown name or function and a value that is no truth are errors.
    """
    for mark, remedy in _FORBIDDEN.items():
        if mark in _TEXT.sub("''", text):
            raise SpaceError(f"{text!r} contains {mark}", remedy)
    sql = _DECIMAL.sub(r"\1e0", replace_quantities(text))
    named = "".join(_translated(part, words, text) for part in _parts(sql))
    try:
        expression = pl.sql_expr(named)
    except pl.exceptions.PolarsError as error:
        raise SpaceError(f"{text!r} is no condition: {error}") from error
    columns = frozenset(expression.meta.root_names())
    if not columns:
        raise SpaceError(f"{text!r} names no column", f"use one of {', '.join(sorted(words))}")
    _require_plain(expression, text)
    _require_boolean(expression, text, dict(words.values()))
    return Where(text=text, sql=named, columns=columns)


def _parts(sql: str) -> Iterator[str]:
    """Yield the text outside and inside of single quotes, in order."""
    end = 0
    for match in _TEXT.finditer(sql):
        yield sql[end : match.start()]
        yield match[0]
        end = match.end()
    yield sql[end:]


def _translated(part: str, words: Words, text: str) -> str:
    """Return SQL with each word replaced by its quoted column; unknown words are errors."""
    if part.startswith("'"):
        return part

    def replaced(match: re.Match[str]) -> str:
        word = match[0].removesuffix(match["call"] or "")
        if word.lower() in _KEYWORDS:
            return match[0]
        if match["call"]:
            if word.lower() in FUNCTIONS:
                return match[0]
            hint = did_you_mean(word, FUNCTIONS) or f"; allowed: {', '.join(sorted(FUNCTIONS))}"
            raise SpaceError(f"{text!r} calls {word}, which is not allowed{hint}")
        if word not in words:
            hint = did_you_mean(word, words) or f"; known: {', '.join(sorted(words))}"
            raise SpaceError(f"{text!r} names {word}, which is neither a column nor a unit{hint}")
        return f'"{words[word][0]}"'

    return _WORD.sub(replaced, part)


def _require_plain(expression: pl.Expr, text: str) -> None:
    """Raise unless the expression is one unnamed condition without chained comparisons."""
    if not expression.meta.undo_aliases().meta.eq(expression):
        raise SpaceError(f"{text!r} names its result", "state the condition alone")
    tree = json.loads(expression.meta.serialize(format="json"))
    if any(_is_comparison(side) for node in _comparisons(tree) for side in _sides(node)):
        raise SpaceError(f"{text!r} chains comparisons", "join two of them by AND")


def _require_boolean(expression: pl.Expr, text: str, dtypes: Mapping[str, DType]) -> None:
    """Raise unless the condition is true or false for every row."""
    frame = pl.LazyFrame(schema=dict(dtypes))
    try:
        # Running it on no rows also finds what the schema alone does not: text against a number.
        found = frame.select(expression).collect().dtypes[0]
    except pl.exceptions.PolarsError as error:
        first = str(error).splitlines()[0]
        raise SpaceError(f"{text!r} cannot be evaluated: {first}") from error
    if found != pl.Boolean:
        raise SpaceError(f"{text!r} is {found}, not a truth", "compare it with something")


def _comparisons(node: Any) -> Iterator[Any]:
    """Yield every comparison of a serialised expression."""
    if _is_comparison(node):
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _comparisons(child)


def _is_comparison(node: Any) -> bool:
    inner = node.get("BinaryExpr") if isinstance(node, dict) else None
    return isinstance(inner, dict) and inner.get("op") in _COMPARISONS


def _sides(node: Any) -> tuple[Any, Any]:
    return node["BinaryExpr"]["left"], node["BinaryExpr"]["right"]
