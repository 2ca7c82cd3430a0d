"""Units: SI floats inside, quantities such as `4.8 TB/s` outside.

A `Unit` is metadata of a field: `hbm_bytes: Bytes` reads `141 GB` from YAML and holds `1.41e11`. The
value is kept in the unit's own symbol: SI, but for prices, which keep the hour and the kilowatt-hour
that the trade uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction as Ratio
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_args

from dse.base.errors import UserError

if TYPE_CHECKING:
    from pint import UnitRegistry

__all__ = [
    "UNITS",
    "Bytes",
    "BytesPerSecond",
    "Count",
    "FlopPerSecond",
    "Fraction",
    "Hertz",
    "Joules",
    "OpPerSecond",
    "Percent",
    "ReqPerSecond",
    "Seconds",
    "TokPerSecond",
    "Tokens",
    "Unit",
    "Usd",
    "UsdPerHour",
    "UsdPerKwh",
    "Watts",
    "parse",
    "replace_quantities",
    "show",
    "unit_of",
    "unit_of_name",
]

# Prefixes and units that a quantity may use. pint's own table is not loaded: there `Gb` is the gilbert.
_DEFINITIONS = """
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
exa- = 1e18 = E-
milli- = 1e-3 = m-
micro- = 1e-6 = u- = µ- = μ-
nano- = 1e-9 = n-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
pebi- = 2**50 = Pi-
byte = [information] = B
bit = byte / 8 = b
second = [time] = s
minute = 60 * second = min
hour = 3600 * second = h
day = 86400 * second = d
hertz = 1 / second = Hz
watt = [power] = W
joule = watt * second = J
watthour = watt * hour = Wh
dollar = [currency] = USD
token = [token] = tok
request = [request] = req
flop = [flop] = FLOP
operation = [operation] = op
"""

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_SYMBOL = r"[A-Za-zµμ]+"
_QUANTITY = re.compile(rf"\s*([+-]?{_NUMBER})\s*({_SYMBOL}(?:/{_SYMBOL})?)\s*")
_COUNT = re.compile(rf"\s*({_NUMBER})\s*(k|M|G|Ki|Mi|Gi)?\s*")
_PERCENT = re.compile(rf"\s*({_NUMBER})\s*%\s*")
_MULTIPLES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_IN_TEXT = re.compile(
    rf"'[^']*'|(?<![\w.])(?P<number>{_NUMBER})\s*(?P<unit>{_SYMBOL})(?P<per>/{_SYMBOL})?(?![\w(])"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """What a float field means and how YAML writes it.

    `symbol` is the unit the value is kept in, `dimension` its name in an error, `suffix` what a
    field's name ends in and its YAML key leaves out, `example` a quantity to imitate, and `prefixes`
    those that `show` may choose, smallest first.
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
        raise UserError(
            f"{value!r} is {'a bare number' if _is_number(value) else 'no quantity'}; "
            f"{self.dimension} needs a unit, as in {self.example!r}"
        )

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Let a field annotated with this unit read quantities."""
        return _plain_validator(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """Describe the quantity to editors."""
        return {"type": "string", "description": f"{self.dimension}", "examples": [self.example]}


@dataclass(frozen=True, slots=True)
class CountUnit:
    """An integer that YAML may write `8192`, `8Ki` or `8k`; `suffix` as for `Unit`."""

    suffix: str = ""

    def read(self, value: object) -> int:
        """Return the count; a fraction of one or a negative count is an error."""
        number: float = math.nan
        if isinstance(value, str) and (match := _COUNT.fullmatch(value)):
            number = float(match[1]) * _MULTIPLES[match[2] or ""]
        elif _is_number(value):
            number = value
        if not (number >= 0 and number == math.floor(number)):
            raise UserError(f"{value!r} is not a count, as in 8192, '8k' (8,000) or '8Ki' (8,192)")
        return int(number)

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Let a field annotated with this unit read counts."""
        return _plain_validator(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """Describe the count to editors."""
        return {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
            "examples": ["8Ki"],
        }


@dataclass(frozen=True, slots=True)
class ShareUnit:
    """A ratio that YAML may write `0.9` or `90%`; at most `limit`."""

    limit: float
    suffix: str = ""

    def read(self, value: object) -> float:
        """Return the ratio; outside 0 to `limit` is an error."""
        number: float = math.nan
        if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
            number = float(match[1]) / 100
        elif _is_number(value):
            number = float(value)
        if not 0 <= number <= self.limit or math.isinf(number):
            bound = f" from 0 to {self.limit:g}" if math.isfinite(self.limit) else ""
            raise UserError(f"{value!r} is not a share{bound}, as in 0.9 or '90%'")
        return number

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Let a field annotated with this unit read shares."""
        return _plain_validator(self.read)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """Describe the share to editors."""
        return {
            "anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
            "examples": ["90%"],
        }


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
        Unit("Hz", "a frequency", "hertz", "1.98 GHz", "kMG"),
        Unit("USD", "an amount of money", "usd", "42000 USD"),
        Unit("USD/h", "a price per hour", "usd_per_hour", "2.10 USD/h"),
        Unit("USD/kWh", "an energy price", "usd_per_kwh", "0.09 USD/kWh"),
        Unit("req/s", "a request rate", "req_per_s", "8 req/s"),
        Unit("tok/s", "a token rate", "tok_per_s", "2000 tok/s", "kMG"),
    )
}

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

    `unit` is a `Unit` or a field annotation that holds one. Everything but one number and one unit is
    an error: a bare number, an expression, `$`, infinity, a unit of another dimension.
    """
    target = _require_unit(unit)
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise UserError(
            f"{text!r} is not a quantity; {target.dimension} looks like {target.example!r}"
        )
    if match[1].startswith("-"):
        raise UserError(f"{text!r}: {target.dimension} is never negative")
    factor = _factor(match[2], target.symbol)
    if factor is None:
        wrong = "a unit of another dimension" if _dimension(match[2]) else "an unknown unit"
        raise UserError(
            f"{match[2]!r} in {text!r} is {wrong}; {target.dimension} looks like {target.example!r}"
        )
    return float(Ratio(match[1]) * factor)


def show(value: float, unit: object, digits: int = 3) -> str:
    """Return `value`, given in the unit's symbol, as people read it: `4.8e12` B/s is `4.8 TB/s`."""
    target = _require_unit(unit)
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {target.symbol}"
    rounded = float(f"{value:.{digits - 1}e}")
    factors = {prefix: _PREFIX_FACTORS[prefix] for prefix in target.prefixes} | {"": 1.0}
    fitting = [prefix for prefix, factor in factors.items() if abs(rounded) >= factor]
    prefix = (
        max(fitting, key=factors.__getitem__) if fitting else min(factors, key=factors.__getitem__)
    )
    return f"{_plain(value / factors[prefix], digits)} {prefix}{target.symbol}"


def replace_quantities(text: str) -> str:
    """Return `text` with each quantity replaced by its number in the kept unit.

    `hbm >= 90 GB and isl <= 8Ki` becomes `hbm >= 90000000000.0e0 and isl <= 8192`. Text in single
    quotes stays. Floats carry an exponent because SQL reads `0.05` as a decimal.
    """
    return _IN_TEXT.sub(_replaced, text)


def unit_of(annotation: object) -> Unit | CountUnit | ShareUnit | None:
    """Return the unit that a field's annotation (or a unit itself) carries."""
    for candidate in (annotation, *get_args(annotation)[1:]):
        if isinstance(candidate, Unit | CountUnit | ShareUnit):
            return candidate
    return None


def unit_of_name(name: str) -> Unit | None:
    """Return the unit that a column's name ends in, longest suffix first: `hbm_bytes_per_s` is B/s."""
    ending = [
        unit for unit in UNITS.values() if name == unit.suffix or name.endswith(f"_{unit.suffix}")
    ]
    return max(ending, key=lambda unit: len(unit.suffix), default=None)


_PREFIX_FACTORS = dict(
    zip("nµmkMGTPE", (1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9, 1e12, 1e15, 1e18), strict=True)
)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
    if unit in _MULTIPLES and unit not in {"M", "G"} and not per:
        return str(CountUnit().read(f"{number}{unit}"))
    for symbol, rest in ((unit + per, ""), (unit, per)):
        for target in UNITS:
            if (factor := _factor(symbol, target)) is not None:
                return _literal(float(Ratio(number) * factor)) + rest
    return match[0]


def _literal(value: float) -> str:
    text = repr(value)
    return text if "e" in text else f"{text}e0"


@cache
def _registry() -> UnitRegistry[Any]:
    from pint import UnitRegistry

    # Exact factors, rounded once: `33 us` and the literal 33e-6 are the same float, so ids agree.
    registry: UnitRegistry[Any] = UnitRegistry(None, non_int_type=Ratio)
    for line in _DEFINITIONS.strip().splitlines():
        registry.define(line)
    return registry


@cache
def _dimension(symbol: str) -> str | None:
    """Return the dimension of a unit as text, or None if the unit is unknown."""
    from pint.errors import PintError

    try:
        return str(_registry().parse_units(symbol).dimensionality)
    except PintError:
        return None


@cache
def _factor(symbol: str, target: str) -> Ratio | None:
    """Return what one `symbol` is in `target`, or None if they have no common dimension."""
    dimension = _dimension(symbol)
    if dimension is None or dimension != _dimension(target):
        return None
    return Ratio(_registry().Quantity(Ratio(1), symbol).to(target).magnitude)
