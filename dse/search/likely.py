"""Latencies that a closed loop is likely to have by Little's law: no bound, but fit to sort by."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from dse.search.envelope import Array
from dse.serving.slo import SLO

# Likely means that keep an SLO, as multiples of it: some first tokens of the loop's start are late
# anyway, and the guess of TPOT is 9-18% low.
_MEAN_TTFT, _MEAN_TPOT = 1.75, 0.92


def likely(points: pl.DataFrame, fastest: Mapping[str, Array], slo: SLO | None) -> dict[str, Array]:
    """`fastest` metrics by point, with the TTFT and E2E that follow from the concurrency of
    `points`, and a `slo_attainment` of 1 or 0: whether means keep `slo`. NaN: nothing is known.
    """
    found = dict(fastest)
    per_s = found["goodput_req_per_s_per_gpu"] * points["n_gpus"].to_numpy()
    answer = found["output_tok_per_s_per_gpu"] / found["goodput_req_per_s_per_gpu"]
    in_flight = points["concurrency"].to_numpy() if "concurrency" in points.columns else np.nan
    found["e2e_mean_s"] = in_flight / per_s
    found["ttft_mean_s"] = found["e2e_mean_s"] - found["tpot_mean_s"] * (answer - 1.0)
    asked = slo or SLO(attainment=0.0)
    kept = np.ones_like(per_s)
    for name, bound, room in (
        ("ttft_mean_s", asked.ttft_s, _MEAN_TTFT),
        ("tpot_mean_s", asked.tpot_s, _MEAN_TPOT),
        ("e2e_mean_s", asked.e2e_s, _MEAN_TPOT),
    ):
        if bound is not None:
            kept *= found[name] <= bound * room
    found["slo_attainment"] = np.where(np.isnan(per_s), np.nan, kept)
    return found
