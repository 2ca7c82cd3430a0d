"""GEMM tables made to describe a GEMM: scale passes taken off, stalls found."""

from pathlib import Path

import polars as pl
import pytest

from dse.evidence import kernels_gemm
from dse.evidence.kernels_gemm import stalled, static_scales
from dse.evidence.silicon import Table


def sweep(latency_ms: list[float], m: list[int], n: int = 1024) -> pl.DataFrame:
    """One weight matrix under growing batches."""
    return pl.DataFrame({"m": m, "n": n, "k": 8192, "timed": latency_ms})


def test_a_row_slower_than_the_same_weights_with_more_rows_stalled() -> None:
    """vLLM's FP8 GEMM on a B200: 23 µs for one row of activations, 10.7 for two."""
    part = sweep([0.0230, 0.0107, 0.0104, 0.0305, 0.0125], [1, 2, 6, 13, 96])
    assert stalled(part).tolist() == [True, False, False, True, False]


def test_a_constant_excess_shows_in_small_batches_of_large_weights_only() -> None:
    """70 µs where more rows take 57: 1.23 times, a launch of 13 µs; a large batch varies so."""
    assert stalled(sweep([0.070, 0.057, 0.057], [1, 2, 4])).tolist() == [True, False, False]
    assert not stalled(sweep([0.070, 0.057, 0.057], [1024, 2048, 4096])).any()


def test_weights_are_compared_with_themselves_and_rows_keep_their_order() -> None:
    slow, fast = sweep([0.030, 0.031], [4, 1], n=4096), sweep([0.010, 0.025], [4, 1], n=512)
    assert stalled(pl.concat([slow, fast])).tolist() == [False, False, False, True]


@pytest.fixture
def passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database whose scale pass takes 8 µs at any size it lists."""
    path = tmp_path / "computescale_perf.parquet"
    rows = {"m": [1, 2, 4], "k": [8192] * 3, "quant_dtype": ["fp8"] * 3, "latency": [0.008] * 3}
    pl.DataFrame(rows).write_parquet(path)
    table = Table(
        gpu="B200-SXM", engine="trtllm", version="1", name="computescale", path=path, n_rows=3
    )
    monkeypatch.setattr(kernels_gemm, "tables", lambda name: (table,))


def gemm_table(engine: str) -> Table:
    return Table(gpu="B200-SXM", engine=engine, version="1", name="gemm", path=Path(), n_rows=4)


def frame() -> pl.DataFrame:
    dtypes = ["fp8", "fp8", "bfloat16", "fp8"]
    return pl.DataFrame(
        {"m": [1, 2, 1, 3], "k": 8192, "n": 1024, "gemm_dtype": dtypes, "latency": 0.018}
    )


@pytest.mark.usefixtures("passes")
def test_the_scale_pass_comes_off_fp8_rows_of_tensorrt_llm() -> None:
    """18 µs hold 8 of the pass; the other format keeps its time, a shape without a pass goes."""
    left = static_scales(gemm_table("trtllm"), frame())
    assert left["latency"].to_list() == pytest.approx([0.010, 0.010, 0.018])
    assert left["timed"].to_list() == pytest.approx([0.018] * 3)


@pytest.mark.usefixtures("passes")
def test_other_engines_keep_their_times() -> None:
    left = static_scales(gemm_table("vllm"), frame())
    assert left["latency"].to_list() == left["timed"].to_list() == pytest.approx([0.018] * 4)
