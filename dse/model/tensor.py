"""Weight tensors: the unit in which parameters and bytes are counted."""

from dataclasses import dataclass
from typing import Literal

TensorClass = Literal[
    "attention",
    "dense_ffn",
    "expert",
    "shared_expert",
    "router",
    "norm",
    "embedding",
    "head",
    "state",
    "other",
]


@dataclass(frozen=True, slots=True)
class Tensor:
    """`elements` of one weight tensor on one rank; `cls` decides its dtype (see `Precision`).

    `count` tells equal tensors apart (experts of a rank), so that a step that touches only some of
    them reads only these.
    """

    name: str
    cls: TensorClass
    elements: float
    count: float = 1.0

    @property
    def total_elements(self) -> float:
        """Elements of all `count` copies."""
        return self.elements * self.count
