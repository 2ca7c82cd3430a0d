"""Prices of a GPU hour: quoted, or what owning one comes to. Never part of a point's identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dse.base.errors import StudyError
from dse.base.units import Fraction, Usd, UsdPerHour, UsdPerKwh
from dse.hardware import GPU
from dse.space.keyed import Keyed

__all__ = ["PRICE", "Owned", "Price", "Quoted"]

HOURS_PER_YEAR = 8766.0
WATTS_PER_KW = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A quoted price per GPU and hour; several are a sensitivity axis of the report."""

    usd_per_hour: tuple[UsdPerHour, ...]
    source: str = "the study"

    def usd_per_gpu_hour(self, gpu: GPU) -> tuple[float, ...]:
        """Return the prices in USD per GPU and hour, the first being the one that decides."""
        return self.usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What owning a GPU costs: capital spread over the hours that it is used, and its energy.

    `utilisation` is the share of its life that it serves. `energy` is paid at the rated power,
    times `pue` for cooling and losses, while it serves.
    """

    capex_usd: Usd
    years: float
    utilisation: Fraction
    energy_usd_per_kwh: UsdPerKwh = 0.0
    pue: float = 1.0
    source: str = "the study"

    def __post_init__(self) -> None:
        if not (self.years > 0 and self.utilisation > 0):
            raise StudyError(
                "years and utilisation must be above 0", "as years: 4, utilisation: 0.7"
            )
        if self.pue < 1:
            raise StudyError(f"pue is {self.pue}", "total power over IT power is at least 1")

    def usd_per_gpu_hour(self, gpu: GPU) -> tuple[float, ...]:
        """Return capex ÷ hours in use + rated kW × PUE × energy price, in USD per GPU and hour."""
        capital = self.capex_usd / (self.years * HOURS_PER_YEAR * self.utilisation)
        energy = gpu.tdp_watts / WATTS_PER_KW * self.pue * self.energy_usd_per_kwh
        return (capital + energy,)


Price = Quoted | Owned


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuotedFile:
    """`{usd_per_hour: 2.10 USD/h, source: …}`."""

    usd_per_hour: UsdPerHour
    source: str = "the study"


@dataclass(frozen=True, slots=True)
class _PriceForm:
    """Reads a price: `1.90 USD/h`, a list of such, or a mapping."""

    inner: Any = field(
        default=Keyed(
            (("usd_per_hour", _QuotedFile), ("capex", Owned)),
            one=UsdPerHour,
            many=tuple[UsdPerHour, ...],
        )
    )

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Any:
        """Read any form as a `Price`."""
        return {
            "type": "function-after",
            "schema": self.inner.__get_pydantic_core_schema__(source, handler),
            "function": {"type": "no-info", "function": _price},
        }


PRICE = _PriceForm()


def _price(value: Any) -> Price:
    if isinstance(value, Owned):
        return value
    if isinstance(value, _QuotedFile):
        return Quoted(usd_per_hour=(value.usd_per_hour,), source=value.source)
    found = value if isinstance(value, tuple) else (value,)
    if not found:
        raise StudyError("the list of prices is empty", "give at least one, as [1.90 USD/h]")
    return Quoted(usd_per_hour=found)
