"""The router family: which rank of which replica takes a request."""

from dse.base.family import Family
from dse.serving.routers._base import Router, Target
from dse.serving.routers.least_loaded import LeastLoaded
from dse.serving.routers.prefix_aware import PrefixAware
from dse.serving.routers.round_robin import RoundRobin

ROUTERS = Family(__name__, Router)

__all__ = ["ROUTERS", "LeastLoaded", "PrefixAware", "RoundRobin", "Router", "Target"]
