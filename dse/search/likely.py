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
# The same where the loop is known that runs evenly: its TPOT is that of most requests. Of a queue's
# tail no less than such a share is asked for, as rarer waits are not exponential.
_EVEN_TPOT, _RAREST = 0.955, 0.005


def likely(
    points: pl.DataFrame,
    fastest: Mapping[str, Array],
    slo: SLO | None,
    burst: Array,
    first: tuple[Array, Array] | None = None,
) -> dict[str, Array]:
    """`fastest` metrics by point, with the TTFT and E2E that follow from the concurrency of
    `points`, and `strain`: up to 1 `slo` is likely kept. NaN where nothing is known. `burst` is the
    measured share of requests that are asked at once; `first` the seconds of a first token's own
    steps and of its queue, where they are known of the loop that runs evenly.
    """
    found = dict(fastest)
    per_s = found["goodput_req_per_s_per_gpu"] * points["n_gpus"].to_numpy()
    answer = found["output_tok_per_s_per_gpu"] / found["goodput_req_per_s_per_gpu"]
    in_flight = points["concurrency"].to_numpy() if "concurrency" in points.columns else np.nan
    found["e2e_mean_s"] = in_flight / per_s
    found["ttft_mean_s"] = found["e2e_mean_s"] - found["tpot_mean_s"] * (answer - 1.0)
    asked = slo or SLO(attainment=0.0)
    late = 1.0 - found["slo_attainment"]
    served = np.maximum(burst - late, 0.0)
    late = np.where((late > 0.0) & (burst > 0.0), burst - _SERVED * served, late)
    first_s, tpot = found["ttft_mean_s"] / _MEAN_TTFT, _MEAN_TPOT
    if first is not None:
        found["ttft_mean_s"] = first[0] + first[1]
        found["e2e_mean_s"] = found["ttft_mean_s"] + found["tpot_mean_s"] * (answer - 1.0)
        # Waits have about an exponential tail, of which so much may be late.
        spare = np.maximum(1.0 - asked.attainment - late, _RAREST)
        first_s, tpot = first[0] - first[1] * np.log(np.minimum(spare, 1.0)), _EVEN_TPOT
    strain = np.where(np.isnan(per_s), np.nan, 0.0)
    for seconds, bound in (
        (first_s, asked.ttft_s),
        (found["tpot_mean_s"] / tpot, asked.tpot_s),
        (found["e2e_mean_s"] / tpot, asked.e2e_s),
    ):
        if bound is not None:
            strain = np.maximum(strain, seconds / bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        strain = np.fmax(strain, late / (1.0 - asked.attainment))
    found["strain"] = np.where(np.isnan(per_s), np.nan, strain)
    return found
