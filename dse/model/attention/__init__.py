"""The attention family: what a layer keeps per token, its weights, and the ops of a step."""

from dse.base.family import Family
from dse.model.attention._base import Attention

ATTENTIONS = Family(__name__, Attention)

__all__ = ["ATTENTIONS", "Attention"]
