"""Latencies that a closed loop is likely to have by Little's law: no bound, but fit to sort by."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from dse.search.envelope import Array
from dse.serving.slo import SLO

# Means that keep an SLO are at most so many times it: some first tokens of the loop's start are
# late anyway, and the guess of TPOT is 9-18% low. Of the prompts asked at once that may be in time
# by their bound so many are.
_MEAN_TTFT, _MEAN_TPOT, _SERVED = 1.75, 0.92, 0.8


def likely(
    points: pl.DataFrame, fastest: Mapping[str, Array], slo: SLO | None, burst: Array
) -> dict[str, Array]:
    """`fastest` metrics by point, with the TTFT and E2E that follow from the concurrency of
    `points`, and `strain`: up to 1 `slo` is likely kept. NaN where nothing is known. `burst` is the
    measured share of requests that are asked at once.
    """
    found = dict(fastest)
    per_s = found["goodput_req_per_s_per_gpu"] * points["n_gpus"].to_numpy()
    answer = found["output_tok_per_s_per_gpu"] / found["goodput_req_per_s_per_gpu"]
    in_flight = points["concurrency"].to_numpy() if "concurrency" in points.columns else np.nan
    found["e2e_mean_s"] = in_flight / per_s
    found["ttft_mean_s"] = found["e2e_mean_s"] - found["tpot_mean_s"] * (answer - 1.0)
    asked = slo or SLO(attainment=0.0)
    strain = np.where(np.isnan(per_s), np.nan, 0.0)
    for name, bound, room in (
        ("ttft_mean_s", asked.ttft_s, _MEAN_TTFT),
        ("tpot_mean_s", asked.tpot_s, _MEAN_TPOT),
        ("e2e_mean_s", asked.e2e_s, _MEAN_TPOT),
    ):
        if bound is not None:
            strain = np.maximum(strain, found[name] / (bound * room))
    late = 1.0 - found["slo_attainment"]
    served = np.maximum(burst - late, 0.0)
    late = np.where((late > 0.0) & (burst > 0.0), burst - _SERVED * served, late)
    with np.errstate(divide="ignore", invalid="ignore"):
        strain = np.fmax(strain, late / (1.0 - asked.attainment))
    found["strain"] = np.where(np.isnan(per_s), np.nan, strain)
    return found
