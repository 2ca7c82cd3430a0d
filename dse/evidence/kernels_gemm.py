"""What GEMM tables of the silicon database need before they describe a GEMM.

*Static scales.* TensorRT-LLM's FP8 rows time a linear layer that computes the scale of its input
first. Its FP8 checkpoints store that scale, so the pass, which the database lists apart
(`computescale`), is taken off; the conversion stays, since the engine does it. On a B200 the pass
is 7-10 µs of a small GEMM's 18.

*Stalls.* Some rows took longer than the same weights with more rows of activations, which do all of
their work and more: vLLM's FP8 GEMM on Blackwell with one row, by 10-20 µs whatever the weights (a
launch outside the graph). Such a row times the host, and is left out and counted.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dse.evidence.silicon import Table, tables

STALLED = 1.35  # times the least that the same weights take with as many rows or more
# Up to this many rows the weights alone decide the time, so a constant excess shows.
FEW_ROWS, STALLED_FEW_ROWS, STALL_MS = 64, 1.15, 8e-3


def static_scales(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` without the scale pass of TensorRT-LLM's FP8 rows, `timed` keeping what was measured;
    rows of shapes whose pass was not measured, or took as long as the whole, are dropped.
    """
    frame = frame.with_columns(timed="latency")
    passes = [t for t in tables("computescale") if (t.gpu, t.engine) == (table.gpu, table.engine)]
    if table.engine != "trtllm" or not passes:
        return frame
    scale = passes[0].scan().filter(quant_dtype="fp8").group_by("m", "k")
    each = scale.agg(pl.col("latency").mean())
    # A pass is 7-10 µs with a noise of 1 µs: the median of neighbouring sizes.
    smooth = pl.col("latency").rolling_median(7, min_samples=1, center=True)
    known = each.select("m", "k", scale=smooth.over("k", order_by="m")).collect()
    narrow = pl.col("gemm_dtype") == "fp8"
    joined = frame.join(known, on=["m", "k"], how="left", maintain_order="left")
    left = pl.when(narrow).then(pl.col("latency") - pl.col("scale")).otherwise(pl.col("latency"))
    return joined.with_columns(latency=left).filter(pl.col("latency") > 0).drop("scale")


def stalled(part: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Rows of one implementation (columns `m`, `n`, `k` and `timed` in ms) that stalled."""
    rows = part.select("m", "n", "k", "timed").with_row_index("place").sort("n", "k", "m")
    least: Any = pl.col("timed").reverse().cum_min().reverse().over("n", "k")
    excess = pl.col("timed") / pl.col("least")
    constant = (
        (pl.col("m") <= FEW_ROWS)
        & (excess > STALLED_FEW_ROWS)
        & (pl.col("timed") - pl.col("least") > STALL_MS)
    )
    found = rows.with_columns(least=least).with_columns(stalled=(excess > STALLED) | constant)
    return found.sort("place")["stalled"].to_numpy()
