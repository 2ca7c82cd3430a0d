"""The lengths family: how many tokens a prompt or an answer has."""

from dse.base.family import Family
from dse.serving.lengths._base import Lengths
from dse.serving.lengths.constant import Constant
from dse.serving.lengths.histogram import Histogram
from dse.serving.lengths.lognormal import Lognormal
from dse.serving.lengths.uniform import Uniform

LENGTHS = Family(__name__, Lengths)

__all__ = ["LENGTHS", "Constant", "Histogram", "Lengths", "Lognormal", "Uniform"]
