"""The simulator: one serving replica, or a cluster of them, in virtual time."""

from dse.sim.metrics import PointMetrics, Spread
from dse.sim.simulate import SIM_VERSION, simulate
from dse.sim.sketch import LatencySketch
from dse.sim.spec import RunSpec, compile_pool, compile_run
from dse.sim.traffic import Requests, realised_requests

__all__ = [
    "SIM_VERSION",
    "LatencySketch",
    "PointMetrics",
    "Requests",
    "RunSpec",
    "Spread",
    "compile_pool",
    "compile_run",
    "realised_requests",
    "simulate",
]
