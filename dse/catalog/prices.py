"""Dated prices of GPUs: what somebody asked for an hour of one, and where that stands."""

from collections.abc import Mapping
from dataclasses import dataclass

from dse.base.units import UsdPerHour


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """The prices of one source on one day, in USD per GPU and hour, by catalog name of the GPU.

    `basis` says what is paid for: `on_demand`, `reserved`, `lease` or `tco` (owning: capital, power
    and hosting spread over its life).
    """

    name: str
    date: str
    basis: str
    usd_per_gpu_hour: Mapping[str, UsdPerHour]
    source: str
    notes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One GPU's price in one list."""

    gpu: str
    usd_per_gpu_hour: UsdPerHour
    date: str
    basis: str
    name: str
    source: str


def quotes(lists: tuple[PriceList, ...]) -> tuple[Quote, ...]:
    """Every quote of `lists`, by GPU, newest first."""
    found = [
        Quote(
            gpu=gpu,
            usd_per_gpu_hour=price,
            date=each.date,
            basis=each.basis,
            name=each.name,
            source=each.source,
        )
        for each in lists
        for gpu, price in each.usd_per_gpu_hour.items()
    ]
    newest = sorted(found, key=lambda quote: quote.date, reverse=True)
    return tuple(sorted(newest, key=lambda quote: quote.gpu))
