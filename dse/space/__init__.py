"""What may vary: axes, links and conditions, and the points that they span."""

from dse.space.enumerate import Size, numeric, points, size, stride, structures
from dse.space.space import Branch, Space, load_space
from dse.space.structure import Structure

__all__ = [
    "Branch",
    "Size",
    "Space",
    "Structure",
    "load_space",
    "numeric",
    "points",
    "size",
    "stride",
    "structures",
]
