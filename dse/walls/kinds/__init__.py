"""The wall family: sound tests that judge a point before anything is simulated."""

from dse.base.family import Family
from dse.walls.kinds._base import Wall

WALLS = Family(__name__, Wall)

__all__ = ["WALLS", "Wall"]
