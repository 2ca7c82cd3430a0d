"""Goodput ceiling: so many requests in flight cannot all be served in time."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.model.ops import Num
from dse.walls.floors import Columns, tokens_per_s
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputCeiling(Wall):
    """Tokens/s that a closed loop must yield if enough requests meet both bounds, against the most
    that the deployment yields within the TPOT bound.

    Of N requests, C in flight, the last starts at T. Until then the loop is full, so C·T is at most
    the time of good requests, aN·(TTFT + (OSL−1)·TPOT), plus (1−a)N·T of the others (Little's law,
    finite). By T at least aN−C good ones are done. The mean batch under a TPOT bound follows from
    Cauchy's inequality, which the union of experts does not break.
    """

    cites: ClassVar[str] = "Little 1961; arXiv:2607.05876, section 3.5"
    unit: ClassVar[str] = "tok_per_s"
    needs: ClassVar[tuple[str, ...]] = (
        "slo_tpot_s",
        "slo_ttft_s",
        "slo_attainment",
        "n_requests",
        "concurrency",
    )
    says: ClassVar[str] = "the load needs more tokens/s than any schedule yields within the SLO"
    varies: ClassVar[bool] = True
    kind: Literal["goodput_ceiling"] = "goodput_ceiling"

    def demand(self, c: Columns) -> Num:
        n, in_flight = c["n_requests"], c["concurrency"]
        good = c["slo_attainment"] * n
        longest_s = c["slo_ttft_s"] + (c["osl_high_tokens"] - 1.0) * c["slo_tpot_s"]
        starts_in_longest = np.maximum(in_flight - (n - good), 1e-9) / np.maximum(good, 1e-9)
        done = np.maximum(good - in_flight, 0.0)
        return done * starts_in_longest * (c["osl_low_tokens"] / longest_s)

    def limit(self, c: Columns) -> Num:
        return tokens_per_s(c, slo_tpot_s=c["slo_tpot_s"])
