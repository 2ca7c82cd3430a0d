"""Order of layouts: pairs that agree, ties left out."""

import polars as pl
import pytest

from dse.evidence.ranking import ranking


def frame(*rows: tuple[str, str, float, float]) -> pl.DataFrame:
    """(load, layout, measured, predicted) rows of one model and GPU."""
    return pl.DataFrame(
        rows, schema=["load", "layout", "measured_tpot_s", "pred_tpot_s"], orient="row"
    )


def test_pairs_that_agree_less_those_that_do_not() -> None:
    rows = frame(
        ("a", "tp4 dp1 ep1", 1.0, 2.0),
        ("a", "tp4 dp1 ep4", 2.0, 3.0),
        ("a", "tp1 dp4 ep4", 3.0, 2.5),
    )
    found = ranking(rows, ("load",))
    assert (found.n_groups, found.n_pairs) == (1, 3)
    assert found.tau == pytest.approx(1 / 3)
    assert found.best == 1.0
    (wrong,) = found.reversed
    assert (wrong.where, wrong.faster, wrong.slower) == ("a", "tp4 dp1 ep4", "tp1 dp4 ep4")
    assert (wrong.measured, wrong.predicted) == pytest.approx((1.5, 2.5 / 3.0))


def test_other_loads_other_gpus_and_ties_are_no_pairs() -> None:
    rows = frame(
        ("a", "tp4 dp1 ep1", 1.0, 2.0),
        ("b", "tp4 dp1 ep4", 2.0, 1.0),
        ("a", "tp8 dp1 ep1", 0.5, 9.0),
        ("a", "tp4 dp1 ep4", 1.01, 1.0),
    )
    assert ranking(rows, ("load",)).n_pairs == 0


def test_layouts_whose_repeats_overlap_are_ties() -> None:
    rows = frame(
        ("a", "tp4 dp1 ep1", 1.0, 2.0),
        ("a", "tp4 dp1 ep1", 1.2, 2.0),
        ("a", "tp4 dp1 ep4", 1.19, 1.0),
        ("a", "tp1 dp4 ep4", 1.5, 3.0),
    )
    found = ranking(rows, ("load",))
    assert (found.n_pairs, found.tau) == (2, 1.0)
