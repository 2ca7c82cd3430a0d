"""The arrivals family: when requests come."""

from dse.base.family import Family
from dse.serving.arrivals._base import Arrivals
from dse.serving.arrivals.all_at_once import AllAtOnce
from dse.serving.arrivals.closed_loop import ClosedLoop
from dse.serving.arrivals.constant import ConstantRate
from dse.serving.arrivals.gamma import Gamma
from dse.serving.arrivals.poisson import Poisson
from dse.serving.arrivals.trace import Trace, TraceRequest

ARRIVALS = Family(__name__, Arrivals)

__all__ = [
    "ARRIVALS",
    "AllAtOnce",
    "Arrivals",
    "ClosedLoop",
    "ConstantRate",
    "Gamma",
    "Poisson",
    "Trace",
    "TraceRequest",
]
