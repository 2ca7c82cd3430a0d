"""Conditions: what they may say, and each thing that they may not, with its message."""

import polars as pl
import pytest

from dse.base.errors import SpaceError
from dse.space.where import parse_where

WORDS = {
    "tp": ("tp", pl.Int64),
    "pp": ("pp", pl.Int64),
    "isl": ("isl_tokens", pl.Int64),
    "hbm": ("gpu.hbm", pl.Float64),
    "gpu.hbm": ("gpu.hbm", pl.Float64),
    "gpu": ("gpu", pl.String),
}
FRAME = pl.DataFrame(
    {
        "tp": [1, 8, 16, None],
        "pp": [1, 2, 2, 1],
        "isl_tokens": [8000, 8192, 8193, 1],
        "gpu.hbm": [80e9, 90e9, 141e9, 141e9],
        "gpu": ["h100-sxm", "h200-sxm", "h200-sxm", "90 GB"],
    }
)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("tp * pp <= 16", [True, True, False, False]),
        ("hbm >= 90 GB", [False, True, True, True]),
        ("gpu.hbm >= 0.09 TB", [False, True, True, True]),
        ("isl <= 8Ki", [True, True, False, True]),
        ("isl <= 8k and not tp > 1", [True, False, False, False]),
        ("tp in (1, 16)", [True, False, True, False]),
        ("tp between 2 and 8", [False, True, False, False]),
        ("gpu like 'h200%'", [False, True, True, False]),
        ("gpu = '90 GB'", [False, False, False, True]),
        ("tp is null", [False, False, False, True]),
        ("greatest(tp, pp) < 2.5", [True, False, False, True]),
        ("tp / pp > 0.5 OR tp % 2 = 1", [True, True, True, False]),
        ("CASE WHEN pp > 1 THEN tp > 8 ELSE tp = 1 END", [True, False, True, False]),
    ],
)
def test_a_condition_holds_where_it_says(text, held):
    where = parse_where(text, WORDS)
    assert FRAME.select(where.expr().alias("held"))["held"].to_list() == held


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hbm >= 90 GX", "names GX, which is neither a column nor a unit"),
        ("tp >= 8 as wide", "names as, which is neither a column nor a unit"),
        ("tp < pp < 8", "chains comparisons"),
        ("tp > pp = true", "chains comparisons"),
        ("sum(tp) > 3", "calls sum, which is not allowed"),
        ("count(*) > 1", "calls count, which is not allowed"),
        ("row_number() over () > 1", "calls row_number, which is not allowed"),
        ("sqr(tp) > 3", "did you mean sqrt?"),
        ("tpp > 3", "names tpp, which is neither a column nor a unit; did you mean tp?"),
        ("tp in (select pp from x)", "names select"),
        ('gpu = "h100"', "use single quotes"),
        ("tp + 1", "is Int64, not a truth"),
        ("gpu", "is String, not a truth"),
        ("true", "names no column"),
        ("gpu > 3", "cannot be evaluated"),
        ("tp = 'x'", "cannot be evaluated"),
        ("tp > 1; pp > 1", "contains ;"),
        ("tp > 1 -- why", "contains --"),
        ("tp >", "is no condition"),
        ("", "is no condition"),
    ],
)
def test_what_a_condition_may_not_say(text, message):
    with pytest.raises(SpaceError) as raised:
        parse_where(text, WORDS)
    assert message in str(raised.value)


def test_a_condition_knows_its_columns():
    assert parse_where("isl > 1 and hbm > 1 GB", WORDS).columns == {"isl_tokens", "gpu.hbm"}
