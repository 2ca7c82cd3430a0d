"""The feed-forward family: dense blocks, mixtures of experts, or none."""

from dse.base.family import Family
from dse.model.ffn._base import FFN
from dse.model.ffn._routing import UNIFORM, Routing

FFNS = Family(__name__, FFN)

__all__ = ["FFN", "FFNS", "UNIFORM", "Routing"]
