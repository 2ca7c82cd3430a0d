"""What an answer says of its ranges."""

from dataclasses import replace

from dse.report.bands import bands
from dse.report.sure import sure
from tests.report.test_bands import RATE, ROW, TPOT


def test_a_rate_that_is_less_sure_than_its_latencies_says_why() -> None:
    """TPOT's slow end alone would give a rate 20% lower; the stated range goes to 50% lower."""
    said = " ".join(sure(ROW, bands(ROW | TPOT | RATE), {}))
    assert "output −50% to +10%" in said
    assert "TPOT alone would give −20% to +11%" in said
    near = replace(bands(ROW | TPOT | RATE), rate=(0.75, 1.1))
    assert "TPOT alone" not in " ".join(sure(ROW, near, {}))


def test_a_range_that_ends_at_its_number_says_why() -> None:
    """Intervals are widened to hold 1 where a kind of rows is biased as a whole."""
    above = {"lo_output_tok_per_s_per_gpu": 275.0, "hi_output_tok_per_s_per_gpu": 1000.0}
    said = " ".join(sure(ROW, bands(ROW | TPOT | above), {}))
    assert "The output range ends at the prediction: nearly all measured rows" in said
    assert "lie below it" in said
    start = {"lo_tpot_p99_s": 0.040, "hi_tpot_p99_s": 0.050}
    said = " ".join(sure(ROW, bands(ROW | start | RATE), {}))
    assert "The TPOT range starts at the prediction" in said
    assert "lie above it" in said
    assert "at the prediction" not in " ".join(sure(ROW, bands(ROW | TPOT | RATE), {}))
