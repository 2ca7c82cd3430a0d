"""The objective family: what points are compared by, one module each."""

from dse.base.family import Family
from dse.pareto.objectives._base import Direction, Objective

OBJECTIVES = Family(__name__, Objective)

__all__ = ["OBJECTIVES", "Direction", "Objective"]
