"""Intervals that follow from the stated ones: by which rule, and in which direction."""

from typing import Any

import pytest

from dse.report.bands import bands
from dse.report.subject import Bound

ROW: dict[str, Any] = {
    "tpot_p99_s": 0.040,
    "tpot_p95_s": 0.038,
    "tpot_mean_s": 0.030,
    "output_tok_per_s_per_gpu": 1000.0,
    "goodput_req_per_s_per_gpu": 2.0,
    "usd_per_mtok_output": 0.5,
}
TPOT = {"lo_tpot_p99_s": 0.036, "hi_tpot_p99_s": 0.050}  # factors 0.9 and 1.25
RATE = {"lo_output_tok_per_s_per_gpu": 500.0, "hi_output_tok_per_s_per_gpu": 1100.0}
CURVE = {"advice": {"curve": [{"batch_cap": n, "tpot_s": 0.01 + n / 5000} for n in range(1, 200)]}}


def test_other_percentiles_have_the_factors_of_the_stated_one() -> None:
    assert bands(ROW | TPOT).interval(ROW, "tpot_p95_s") == pytest.approx((0.0342, 0.0475))
    assert bands(ROW | TPOT).interval(ROW, "ttft_p95_s") is None


def test_a_stated_rate_gives_goodput_and_the_inverse_of_cost() -> None:
    known = bands(ROW | TPOT | RATE)
    assert known.stated
    assert known.interval(ROW, "goodput_req_per_s_per_gpu") == pytest.approx((1.0, 2.2))
    assert known.interval(ROW, "usd_per_mtok_output") == pytest.approx((0.5 / 1.1, 1.0))


def test_without_one_a_rate_is_inverse_to_tpot() -> None:
    known = bands(ROW | TPOT)
    assert not known.stated
    assert known.interval(ROW, "goodput_req_per_s_per_gpu") == pytest.approx((1.6, 2 / 0.9))


def test_slow_steps_under_a_tight_bound_leave_fewer_requests_in_flight() -> None:
    bound = Bound(column="tpot_p95_s", limit=0.040, text="TPOT p95")
    tight = bands(ROW | TPOT, [bound], CURVE)
    # Steps may be 0.040 / (1.25 · 0.038) as long as now without the factor: by the curve
    # (10 ms + 0.2 ms a request) that is 76 requests instead of 100.
    assert tight.fewer == pytest.approx((0.030 * 0.040 / 0.0475 - 0.01) * 5000 / 100)
    low, high = tight.of("goodput_req_per_s_per_gpu") or (0.0, 0.0)
    assert low == pytest.approx(tight.fewer * (0.0475 / 0.040) / 1.25)
    assert high == pytest.approx(1 / 0.9)
    loose = Bound(column="tpot_p95_s", limit=0.060, text="TPOT p95")
    assert bands(ROW | TPOT, [loose], CURVE).fewer == 1.0


def test_nothing_is_known_of_what_no_validation_states() -> None:
    known = bands(ROW)
    assert known.rate is None
    assert all(known.of(column) is None for column in ROW)
    assert bands(ROW | TPOT).of("mfu") is None
