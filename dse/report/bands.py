"""The 80% interval of every number of an answer: the stated ones, and those that follow from them.

Validation states intervals of latencies and token rates. The others follow by rule:

- another percentile of TTFT or TPOT has the factors of the stated one;
- goodput and token rates have the factors of the stated token rate. Where none is stated, because
  the study looks for the highest load, a rate is inverse to TPOT: steps that are slower by a factor
  serve fewer requests by that factor. Steps that would then break the SLO's TPOT bound also need
  fewer requests in flight, as the saturation curve of the deployment says;
- a cost per token is the inverse of the rate, GPUs for a load follow from the goodput.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.report.subject import Bound

__all__ = ["Bands", "Pair", "bands"]

Row = Mapping[str, Any]
Pair = tuple[float, float]

_LATENCIES = ("ttft", "tpot", "e2e", "itl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """Factors (low, high) on the latencies by their first word and on `rate`; None where nothing is
    known. `stated` says whether the factors of `rate` are a measured rate's own, `fewer` what share
    of the requests in flight the TPOT bound leaves at the low end.
    """

    latencies: Mapping[str, Pair]
    rate: Pair | None
    stated: bool
    fewer: float

    def of(self, column: str) -> Pair | None:
        """The factors on `column`, whose values they multiply."""
        first = column.partition("_")[0]
        if first in _LATENCIES:
            return self.latencies.get(first)
        if column.startswith("usd_per_mtok"):
            return _inverse(self.rate)
        if column == "tok_per_s_per_user":
            return _inverse(self.latencies.get("tpot"))
        is_rate = "tok_per_s" in column or "goodput" in column or column == "request_per_s"
        return self.rate if is_rate else None

    def interval(self, row: Row, column: str) -> Pair | None:
        """The interval around `row`'s value of `column`, in its unit."""
        value, factors = row.get(column), self.of(column)
        return (
            None if value is None or factors is None else (value * factors[0], value * factors[1])
        )


def bands(row: Row, bounds: Sequence[Bound] = (), detail: Row | None = None) -> Bands:
    """The bands of a row of the front, from its `lo_` and `hi_` columns."""
    found = {
        name: (low / value, high / value)
        for column, low in row.items()
        if column.startswith("lo_") and low is not None
        if (value := row.get(name := column.removeprefix("lo_")))
        and (high := row.get(f"hi_{name}")) is not None
    }
    latencies: dict[str, Pair] = {}
    for column, factors in found.items():
        if (first := column.partition("_")[0]) in _LATENCIES:
            latencies.setdefault(first, factors)
    own = next((factors for column, factors in found.items() if "tok_per_s" in column), None)
    if own is not None or "tpot" not in latencies:
        return Bands(latencies=latencies, rate=own, stated=own is not None, fewer=1.0)
    low, high = latencies["tpot"]
    fewer, longer = _under_the_bound(row, high, bounds, (detail or {}).get("advice") or {})
    rate = (fewer / (high * longer), 1.0 / low)
    return Bands(latencies=latencies, rate=rate, stated=False, fewer=fewer)


def _inverse(factors: Pair | None) -> Pair | None:
    return None if factors is None or factors[0] <= 0.0 else (1.0 / factors[1], 1.0 / factors[0])


def _under_the_bound(row: Row, slower: float, bounds: Sequence[Bound], advice: Row) -> Pair:
    """What share of the requests in flight keeps the TPOT bound with steps that are `slower`, and
    how long a step with so few is against one with all, both without the factor.
    """
    bound = next((each for each in bounds if each.column.startswith("tpot")), None)
    mean = row.get("tpot_mean_s")
    curve = [each for each in advice.get("curve") or [] if each.get("tpot_s")]
    if bound is None or not mean or row.get(bound.column) is None or len(curve) < 2:
        return 1.0, 1.0
    over = slower * row[bound.column] / bound.limit
    times = np.maximum.accumulate([each["tpot_s"] for each in curve])
    if over <= 1.0 or not times[0] < mean / over < mean < times[-1]:
        return 1.0, 1.0
    caps = [float(each["batch_cap"]) for each in curve]
    before, after = np.interp([mean, mean / over], times, caps)
    return float(after / before), 1.0 / over
