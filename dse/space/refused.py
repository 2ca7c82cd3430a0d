"""Why a structure is illegal, in words with the nearest legal values."""

from __future__ import annotations

from dse.serving.layout import Layout
from dse.serving.legality import check
from dse.space.structure import Structure

__all__ = ["refusal"]

_DEGREES = ("tp", "dp", "ep", "pp", "cp")


def refusal(structure: Structure) -> str:
    """The first rule that an illegal structure breaks, with its numbers and the nearest legal
    values, which enumeration leaves out because they take longest.
    """
    first, parts = structure.illegal[0], structure.parts
    for role, (gpu, fabric, engine) in parts.hardware.items():
        before = "" if role == "both" else f"{role}_"
        degrees = {name: int(structure.columns[f"{before}{name}"]) for name in _DEGREES}
        layout = Layout(**degrees)
        for each in check(parts.model, parts.precision, layout, engine, gpu, fabric=fabric):
            if each.reason == first.reason:
                return str(each)
    return str(first)
