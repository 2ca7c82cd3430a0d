"""Numbers with units as text: one regular expression in front, exact conversion behind.

pint does the algebra of units over the definitions below and no others: in its own table `Gb` is
the gilbert and `$` vanishes. The expressions that pint would accept (`3 * 4 GB`) never reach it.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pint import UnitRegistry

__all__ = ["COUNT", "PERCENT", "PREFIXES", "QUANTITY", "QUANTITY_IN_TEXT", "factor", "is_unit"]

PREFIXES = {
    "n": Fraction(1, 10**9),
    "µ": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
}
_MICRO = ("u", "μ")  # as typed on a keyboard, and the Greek letter beside the sign
_ANY_PREFIX = {"": Fraction(1), **PREFIXES, **dict.fromkeys(_MICRO, PREFIXES["µ"])}
_BITS = {"B": "b", "B/s": "b/s"}

_UNITS = """
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

# Short enough that no quantity leaves the range of a float.
_NUMBER = r"(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,2})?"
_SYMBOL = r"[A-Za-zµμ]+"

QUANTITY = re.compile(rf"\s*([+-]?{_NUMBER})\s*({_SYMBOL}(?:/{_SYMBOL})?)\s*")
COUNT = re.compile(rf"\s*({_NUMBER})\s*(k|M|G|Ki|Mi|Gi)?\s*")
PERCENT = re.compile(rf"\s*({_NUMBER})\s*%\s*")
QUANTITY_IN_TEXT = re.compile(
    rf"'[^']*'|(?<![\w.])(?P<number>{_NUMBER})\s*(?P<unit>{_SYMBOL})(?P<per>/{_SYMBOL})?(?![\w(])"
)


@cache
def factor(symbol: str, target: str) -> Fraction | None:
    """Return what one `symbol` is in `target`, a unit, exactly; None if their dimensions differ."""
    if (scale := _scaled(symbol, target)) is not None:
        return scale
    dimension = _dimension(symbol)
    if dimension is None or dimension != _dimension(target):
        return None
    return Fraction(_registry().Quantity(Fraction(1), symbol).to(target).magnitude)


def is_unit(symbol: str) -> bool:
    """Say whether a quantity may use this unit."""
    return _dimension(symbol) is not None


def _scaled(symbol: str, target: str) -> Fraction | None:
    """The factor where `symbol` is `target`, or its bits, with a prefix or none.

    Nearly every quantity is, and to load pint takes longer than to read a study.
    """
    for unit, scale in ((target, Fraction(1)), (_BITS.get(target), Fraction(1, 8))):
        if unit is not None and symbol.endswith(unit):
            prefix = _ANY_PREFIX.get(symbol.removesuffix(unit))
            if prefix is not None:
                return prefix * scale
    return None


@cache
def _registry() -> UnitRegistry[Any]:
    from pint import UnitRegistry

    # Exact factors, rounded once: `33 us` and the literal 33e-6 are the same float, so ids agree.
    registry: UnitRegistry[Any] = UnitRegistry(None, non_int_type=Fraction)
    for prefix, value in PREFIXES.items():
        registry.define(f"{prefix}- = {value.numerator} / {value.denominator}")
    for prefix in _MICRO:
        registry.define(f"{prefix}- = 1 / 1000000")
    for line in _UNITS.strip().splitlines():
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
