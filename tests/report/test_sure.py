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
