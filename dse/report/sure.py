"""How sure an answer is: what its ranges are, and whether a bound or the runner-up is in them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dse.report.bands import Bands
from dse.report.layouts import label
from dse.report.quantities import Quantity, cell, number, quantity
from dse.report.subject import Subject

__all__ = ["cautions", "sure"]

Row = Mapping[str, Any]

# A rate whose low end lies further down than this share of what TPOT's high end gives has rows of
# another kind behind it.
_SAME_ROWS = 0.8
_AT_THE_NUMBER = 5e-4


def sure(best: Row, known: Bands, certificate: Mapping[str, Any]) -> list[str]:
    """Where the ranges come from, and what the search proved."""
    found = list(_ranges(known))
    if best.get("is_tie"):
        found.append("Its replicates overlap those of another member of the front: a tie.")
    if statement := certificate.get("statement"):
        found.append(f"Search: {statement}.")
    return found


def cautions(best: Row, known: Bands, subject: Subject, rivals: Sequence[Row]) -> list[str]:
    """Bounds of the SLO and rivals that lie within the ranges; `rivals` nearest first."""
    found = list(_bounds(best, known, subject))
    if rivals:
        found += _against(best, rivals[0], known, subject.first)
    return found


def _wider(known: Bands) -> str:
    """Why a rate may be less sure than the latencies that make it."""
    tpot = known.latencies.get("tpot")
    if known.rate is None or tpot is None or known.rate[0] > _SAME_ROWS / tpot[1]:
        return ""
    return (
        f". TPOT alone would give {_span(1.0 / tpot[1], 1.0 / tpot[0])}: rates were measured on "
        "fewer rows, many of them of engines a generation older"
    )


def _ranges(known: Bands) -> Iterator[str]:
    if not known.latencies and known.rate is None:
        yield (
            "No validation covers this GPU and regime: the numbers carry no error band, and "
            "differences of a few per cent should not decide."
        )
        return
    yield (
        "Ranges hold 80% of measured rows of this engine and kind of model "
        f"({'; '.join(_factors(known))})."
    )
    yield from _biased(known)
    if known.rate is None:
        return
    if known.stated:
        yield f"Goodput, cost and GPUs have the range of the output rate{_wider(known)}."
        return
    text = "Rates, cost and GPUs have the inverse of the TPOT range"
    if known.fewer < 1.0:
        text += (
            f"; at its slow end the TPOT bound leaves {100 * known.fewer:.0f}% of the requests in "
            "flight, which is counted in"
        )
    yield f"{text}."


def _biased(known: Bands) -> Iterator[str]:
    """Ranges that end at the number itself, and why they do (`evidence/intervals.py`)."""
    named = dict(known.latencies)
    if known.rate is not None and known.stated:
        named["output"] = known.rate
    for side, end, where in ((0, "start", "above"), (1, "end", "below")):
        found = [
            name if name == "output" else name.upper()
            for name in named
            if abs(named[name][side] - 1.0) < _AT_THE_NUMBER
        ]
        if found:
            yield (
                f"The {' and '.join(found)} range{'s' * (len(found) > 1)} {end}"
                f"{'s' * (len(found) == 1)} at the prediction: nearly all measured rows of "
                f"this kind lie {where} it. A range always holds its prediction, as a deployment "
                "need not share that bias; expect the other end."
            )


def _factors(known: Bands) -> Iterator[str]:
    """Each range as per cents of its number."""
    named = [(name.upper(), factors) for name, factors in known.latencies.items()]
    if known.rate is not None and known.stated:
        named.append(("output", known.rate))
    for name, factors in named:
        yield f"{name} {_span(*factors)}"


def _span(low: float, high: float) -> str:
    """−7% to +13%."""
    ends = (f"{100 * (end - 1):+.0f}%".replace("-", "−") for end in (low, high))
    return " to ".join(ends)


def _bounds(best: Row, known: Bands, subject: Subject) -> Iterator[str]:
    """Whether each bound of the SLO is kept over the whole range."""
    for bound in subject.bounds():
        band = known.interval(best, bound.column)
        if band is None:
            continue
        unit = quantity(bound.column).unit
        if band[1] > bound.limit:
            yield (
                f"{bound.text} is kept at {cell(bound.column, best[bound.column])} {unit}, but the "
                f"range ends at {cell(bound.column, band[1])} {unit}: that it is kept lies within "
                "the model's error. Measure it, or plan for less load."
            )


def _against(best: Row, rival: Row, known: Bands, first: Quantity) -> Iterator[str]:
    """Whether the ranges of the best and of the runner-up are apart in the first objective."""
    mine, other, factors = best.get(first.column), rival.get(first.column), known.of(first.column)
    if not mine or not other or factors is None:
        return
    gap = 100 * abs(other / mine - 1)
    names = f"Runner-up {rival.get('gpu')} {label(rival)} is {number(gap, 2)}% behind"
    # Both are priced by one model and engine: the runner-up takes the factors of the best.
    ahead, behind = (mine, other) if first.better == "max" else (other, mine)
    if ahead * factors[0] <= behind * factors[1]:
        yield (
            f"{names} in {first.title}, and the ranges of the two overlap: the numbers alone do "
            "not separate them. Errors that they share cancel, but benchmark both."
        )
