"""What is better: objectives, and the rows that no other row beats in all of them."""

from dse.pareto.front import front, hypervolume, lowest, non_dominated, reference_point
from dse.pareto.objectives import OBJECTIVES, Objective

__all__ = [
    "OBJECTIVES",
    "Objective",
    "front",
    "hypervolume",
    "lowest",
    "non_dominated",
    "reference_point",
]
