"""Which rows a fitted constant saw, and what is left without them."""

import polars as pl
import pytest

from dse.catalog import Catalog
from dse.evidence.fits import FITS, seen, unseen
from dse.evidence.validate import slices

ROWS = pl.DataFrame(
    [
        ("vllm", "H100-64GB", "OPT-1.3B", "at once", "a sweep", 0.1),
        ("trtllm", "H200-SXM", "Llama-2-7B", "static", "tables", 0.2),
        ("trtllm", "h100_sxm", "Qwen3-32B", "agg", "other", 0.3),
        ("trtllm", "b200_sxm", "Qwen3-32B", "agg", "InferenceX", 0.4),
        ("sglang", "MI355X", "DeepSeek-R1", "closed loop", "inferencex_r1", 0.5),
        ("vllm", "MI300X", "Llama-3.1-70B", "static", "tables", 0.6),
        ("vllm", "b200_sxm", "Kimi-K2.5", "agg", "InferenceX", 0.65),
        ("trtllm", "h200_sxm", "Qwen3-32B", "agg", "other", 0.7),
        ("vllm", "MI300X", "Llama-3.1-70B", "offline", None, -0.9),
    ],
    schema=["engine", "gpu", "model", "mode", "source", "error_tpot_s"],
    orient="row",
)


def test_rows_are_seen_or_not() -> None:
    assert seen(ROWS)["error_tpot_s"].to_list() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65]
    assert unseen(ROWS)["error_tpot_s"].to_list() == [0.7, -0.9]


def test_the_table_without_them_is_of_the_others_alone() -> None:
    (whole,) = slices(ROWS, metrics=("tpot_s",))
    (rest,) = slices(unseen(ROWS), metrics=("tpot_s",))
    assert (whole.n, rest.n) == (9, 2)
    assert rest.median_ape == pytest.approx(0.8)


def test_each_fit_saw_something_and_names_what_exists() -> None:
    names = set(Catalog.load().names("engine"))
    for fit in FITS:
        assert ROWS.filter(fit.saw.fill_null(value=False)).height
        assert fit.rows
        if "@" in fit.profile:
            assert fit.profile.split(",")[0] in names
