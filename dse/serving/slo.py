"""Service level objectives."""

from dataclasses import dataclass

from dse.base.units import Fraction, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SLO:
    """A request is good when it meets every bound that is set; `attainment` is the share of
    requests that must be good. TTFT counts queueing; TPOT = (E2E − TTFT) / (OSL − 1).
    """

    ttft_s: Seconds | None = None
    tpot_s: Seconds | None = None
    e2e_s: Seconds | None = None
    attainment: Fraction = 0.99
