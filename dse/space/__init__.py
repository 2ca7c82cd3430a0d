"""What may vary: axes, links and conditions, and the points that they span."""

from dse.space.blocks import Block
from dse.space.enumerate import (
    Size,
    axis_sizes,
    block_points,
    block_structures,
    blocks,
    numeric,
    points,
    size,
    stride,
    structures,
)
from dse.space.space import Branch, Space, load_space
from dse.space.structure import Structure

__all__ = [
    "Block",
    "Branch",
    "Size",
    "Space",
    "Structure",
    "axis_sizes",
    "block_points",
    "block_structures",
    "blocks",
    "load_space",
    "numeric",
    "points",
    "size",
    "stride",
    "structures",
]
