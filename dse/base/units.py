"""Units: SI floats inside, quantities such as `4.8 TB/s` outside.

A `Unit` is metadata of a field: `hbm_bytes: Bytes` reads `141 GB` from YAML and holds `1.41e11`.
The value is kept in the unit's own symbol: SI, but for prices, which keep the hour and the
kilowatt-hour that the trade uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction as Ratio
from typing import Annotated, Any, get_args

from dse.base.errors import UserError
from dse.base.quantities import (
    COUNT,
    PERCENT,
    PREFIXES,
    QUANTITY,
    QUANTITY_IN_TEXT,
    factor,
    is_unit,
)

__all__ = [
    "UNITS",
    "Bytes",
    "BytesPerSecond",
    "Count",
    "CountUnit",
    "FlopPerSecond",
    "Fraction",
    "Hertz",
    "Joules",
    "OpPerSecond",
    "Percent",
    "ReqPerSecond",
    "Seconds",
    "ShareUnit",
    "TokPerSecond",
    "Tokens",
    "Unit",
    "Usd",
    "UsdPerHour",
    "UsdPerKwh",
    "Watts",
    "counted",
    "parse",
    "replace_quantities",
    "show",
    "unit_of",
    "unit_of_name",
]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a float field means and how YAML writes it.

    `symbol` is the unit the value is kept in, `dimension` its name in an error, `suffix` what a
    field's name ends in and its YAML key leaves out, `example` a quantity to imitate, and
    `prefixes` those that `show` may choose.
    """

    symbol: str
    dimension: str
    suffix: str
    example: str
    prefixes: str = ""

    def read(self, value: object) -> float:
        """Return the value, in `symbol`, of a quantity as YAML gives it: text with a unit."""
        if isinstance(value, str):
            return parse(value, self)
        what = "no quantity" if _number(value) is None else "a bare number"
        raise UserError(
            f"{value!r} is {what}; {self.dimension} needs a unit, as in {self.example!r}"
        )

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Let a field annotated with this unit read quantities."""
        return _plain_validator(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """Describe the quantity to editors."""
        return {"type": "string", "description": self.dimension, "examples": [self.example]}


@dataclass(frozen=True, slots=True)
class CountUnit:
    """An integer that YAML may write `8192`, `8Ki` or `8k`; `suffix` as for `Unit`."""

    suffix: str = ""

    def read(self, value: object) -> int:
        """Return the count; a negative number or one with a fraction is an error."""
        number: Ratio | float | None = _number(value)
        if isinstance(value, str) and (match := COUNT.fullmatch(value)):
            number = Ratio(match[1]) * PREFIXES.get(match[2], 1)
        if number is None or not math.isfinite(number) or number < 0 or number % 1:
            raise UserError(f"{value!r} is not a count, as in 8192, '8k' (8,000) or '8Ki' (8,192)")
        return int(number)

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Let a field annotated with this unit read counts."""
        return _plain_validator(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """Describe the count to editors."""
        number = {"type": "integer", "minimum": 0}
        return {"anyOf": [number, {"type": "string", "pattern": "[kMGi]$"}], "examples": ["8Ki"]}


@dataclass(frozen=True, slots=True)
class ShareUnit:
    """A ratio from 0 to `limit` that YAML may write `0.9` or `90%`."""

    limit: float
    suffix: str = ""

    def read(self, value: object) -> float:
        """Return the ratio; one outside 0 to `limit` is an error."""
        number = _number(value)
        if isinstance(value, str) and (match := PERCENT.fullmatch(value)):
            number = float(Ratio(match[1]) / 100)
        if number is None or not (0 <= number <= self.limit and math.isfinite(number)):
            bound = f" from 0 to {self.limit:g}" if math.isfinite(self.limit) else ""
            raise UserError(f"{value!r} is not a share{bound}, as in 0.9 or '90%'")
        return float(number)

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Let a field annotated with this unit read shares."""
        return _plain_validator(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """Describe the share to editors."""
        number = {"type": "number", "minimum": 0}
        return {"anyOf": [number, {"type": "string", "pattern": "%$"}], "examples": ["90%"]}


UNITS = {
    unit.symbol: unit
    for unit in (
        Unit("B", "a size", "bytes", "80 GB", "kMGTPE"),
        Unit("B/s", "a bandwidth", "bytes_per_s", "4.8 TB/s", "kMGTPE"),
        Unit("FLOP/s", "a FLOP rate", "flop_per_s", "989 TFLOP/s", "kMGTPE"),
        Unit("op/s", "an operation rate", "op_per_s", "4 Top/s", "kMGTPE"),
        Unit("s", "a duration", "s", "25 ms", "nµm"),
        Unit("W", "a power", "watts", "700 W", "mkMG"),
        Unit("J", "an energy", "joules", "3.5 kJ", "mkMG"),
        Unit("Hz", "a frequency", "hz", "1.98 GHz", "kMG"),
        Unit("USD", "an amount of money", "usd", "42000 USD"),
        Unit("USD/h", "a price per hour", "usd_per_hour", "2.10 USD/h"),
        Unit("USD/kWh", "an energy price", "usd_per_kwh", "0.09 USD/kWh"),
        Unit("req/s", "a request rate", "req_per_s", "8 req/s"),
        Unit("tok/s", "a token rate", "tok_per_s", "2000 tok/s"),
    )
}
"""Every unit a field may have, by symbol."""

Bytes = Annotated[float, UNITS["B"]]
BytesPerSecond = Annotated[float, UNITS["B/s"]]
FlopPerSecond = Annotated[float, UNITS["FLOP/s"]]
OpPerSecond = Annotated[float, UNITS["op/s"]]
Seconds = Annotated[float, UNITS["s"]]
Watts = Annotated[float, UNITS["W"]]
Joules = Annotated[float, UNITS["J"]]
Hertz = Annotated[float, UNITS["Hz"]]
Usd = Annotated[float, UNITS["USD"]]
UsdPerHour = Annotated[float, UNITS["USD/h"]]
UsdPerKwh = Annotated[float, UNITS["USD/kWh"]]
ReqPerSecond = Annotated[float, UNITS["req/s"]]
TokPerSecond = Annotated[float, UNITS["tok/s"]]
Tokens = Annotated[int, CountUnit("tokens")]
Count = Annotated[int, CountUnit()]
Fraction = Annotated[float, ShareUnit(1.0)]
Percent = Annotated[float, ShareUnit(math.inf)]


def parse(text: str, unit: object) -> float:
    """Return the value of a quantity such as `"400 Gb/s"` in the symbol of `unit` (5e10 for B/s).

    `unit` is a `Unit` or a field annotation that holds one. Everything but one number and one unit
    is an error: a bare number, an expression, `$`, infinity, a unit of another dimension.
    """
    target = _require_unit(unit)
    match = QUANTITY.fullmatch(text)
    if not match:
        raise UserError(f"{text!r} is not a quantity; {target.dimension} needs {target.example!r}")
    number, symbol = match.groups()
    if number.startswith("-"):
        raise UserError(f"{text!r}: {target.dimension} is never negative")
    scale = factor(symbol, target.symbol)
    if scale is None:
        wrong = "a unit of another dimension" if is_unit(symbol) else "an unknown unit"
        like = f"{target.dimension} looks like {target.example!r}"
        raise UserError(f"{symbol!r} in {text!r} is {wrong}; {like}")
    return float(Ratio(number) * scale)


def show(value: float, unit: object, digits: int = 3) -> str:
    """Return `value`, given in the unit's symbol, as people read it: `4.8e12` B/s is `4.8 TB/s`."""
    target = _require_unit(unit)
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {target.symbol}"
    scales = {"": 1.0} | {prefix: float(PREFIXES[prefix]) for prefix in target.prefixes}
    size = abs(float(f"{value:.{digits - 1}e}"))  # rounded first: 999.9 GB is 1 TB, not 1000 GB
    prefix = max((p for p in scales if scales[p] <= size), key=scales.__getitem__, default=None)
    if prefix is None:
        prefix = min(scales, key=scales.__getitem__)
    return f"{_plain(value / scales[prefix], digits)} {prefix}{target.symbol}"


def counted(n: int, what: str) -> str:
    """`1 point`, `12 points`."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def replace_quantities(text: str) -> str:
    """Return `text` with each quantity replaced by its number in the unit that fields keep it in.

    `hbm >= 90 GB and isl <= 8Ki` becomes `hbm >= 90000000000.0e0 and isl <= 8192`. Text in single
    quotes stays. Floats carry an exponent because SQL would read `0.05` as a decimal.
    """
    return QUANTITY_IN_TEXT.sub(_replaced, text)


def unit_of(annotation: object) -> Unit | CountUnit | ShareUnit | None:
    """Return the unit that a field's annotation carries, or the unit that `annotation` is."""
    for candidate in (annotation, *get_args(annotation)[1:]):
        if isinstance(candidate, Unit | CountUnit | ShareUnit):
            return candidate
    return None


def unit_of_name(name: str) -> Unit | None:
    """Return the unit that a column's name ends in, by its longest suffix, or None."""
    fitting = [unit for unit in UNITS.values() if f"_{name}".endswith(f"_{unit.suffix}")]
    return max(fitting, key=lambda unit: len(unit.suffix), default=None)


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _plain_validator(read: Callable[[object], object]) -> Any:
    from pydantic_core import core_schema

    return core_schema.no_info_plain_validator_function(read)


def _require_unit(unit: object) -> Unit:
    found = unit_of(unit)
    if not isinstance(found, Unit):
        raise TypeError(f"{unit!r} carries no unit with a symbol")
    return found


def _plain(value: float, digits: int) -> str:
    """Round the fraction to `digits` significant digits, without exponent or trailing zeros."""
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _replaced(match: re.Match[str]) -> str:
    number, unit, per = match["number"], match["unit"], match["per"] or ""
    if number is None:
        return match[0]
    if COUNT.fullmatch(f"1{unit}"):
        return f"{CountUnit().read(number + unit)}{per}"
    for symbol, rest in ((unit + per, ""), (unit, per)):
        for target in UNITS:
            if (scale := factor(symbol, target)) is not None:
                return f"{_literal(float(Ratio(number) * scale))}{rest}"
    return match[0]


def _literal(value: float) -> str:
    text = repr(value)
    return text if "e" in text else f"{text}e0"
