"""Frame schemas: the check at a seam."""

import polars as pl
import pytest

from dse.base.errors import DseError
from dse.base.frame import Column, Schema, require

POINTS = Schema("POINTS", {"tp": Column(pl.Int64, "ranks"), "gpu": Column(pl.String, "its name")})


def test_a_frame_may_have_more_than_it_must() -> None:
    frame = pl.DataFrame({"tp": [1], "gpu": ["a"], "extra": [None]})
    assert require(frame, POINTS) is frame
    lazy = frame.lazy()
    assert require(lazy, POINTS) is lazy
    require(POINTS.empty(), POINTS)


def test_what_is_missing_or_of_another_type_is_named() -> None:
    with pytest.raises(DseError) as error:
        require(pl.DataFrame({"tp": [1.5]}), POINTS)
    assert str(error.value) == "the frame is no POINTS: tp is Float64, not Int64; gpu is missing"


def test_a_stage_widens_the_schema() -> None:
    facts = POINTS + Schema("FACTS", {"hbm_bytes": Column(pl.Float64, "memory of a GPU")})
    assert facts.name == "FACTS"
    assert facts.dtypes == {"tp": pl.Int64, "gpu": pl.String, "hbm_bytes": pl.Float64}
