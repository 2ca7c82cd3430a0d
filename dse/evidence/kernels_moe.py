"""What expert tables of the silicon database need before they describe a grouped GEMM.

A fused MoE kernel is chosen by timing candidates, and some rows ran a bad one: TensorRT-LLM's
16-bit experts on an H200 (512 experts, top-10, 4096 x 1024, one of eight expert ranks) take 2.5 ms
for 768 tokens and 1.6 ms for 6,144. Other shares of the same layer tell, without a model of speed:

- a larger share (as many tokens or more, no higher degree of TP or EP) does all of a row's work and
  more;
- finer shares make up a row, and could run one after another: the heaviest rank of EP4 is no more
  than two heaviest ranks of EP8. They count where their weights come from HBM, not from the L2.

A row that takes longer than either allows is left out and counted, as a GEMM is that takes longer
than the same weights with more rows (`dse.evidence.kernels_gemm`).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dse.evidence.kernels_gemm import STALLED

LAYER = ("hidden_size", "inter_size", "topk", "num_experts", "distribution")
SHARE = ("moe_tp_size", "moe_ep_size")
COLD = 2.0  # weights of as many times the L2 are not in it when a kernel is timed again


def mistuned(part: pl.DataFrame, cold: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Rows of one implementation (the columns of `LAYER` and `SHARE`, `num_tokens`, `latency`) that
    take over `STALLED` times what other shares of the same layer allow; `cold` marks rows whose
    weights come from HBM.
    """
    keys = [*LAYER, *SHARE, "num_tokens"]
    rows = part.select(*keys, "latency").with_columns(cold=cold)
    piece: Any = pl.col("latency").filter("cold").min()
    each = rows.group_by(keys).agg(pl.col("latency").min(), piece=piece).sort("num_tokens")
    least = each.with_columns(_with_more_tokens("latency"), _with_more_tokens("piece"))
    pairs = least.join(least, on=[*LAYER, "num_tokens"], suffix="_other")
    n_pieces: Any = pl.lit(1.0)
    for degree in SHARE:
        finer = (pl.col(f"{degree}_other") / pl.col(degree)).ceil()
        n_pieces = n_pieces * pl.max_horizontal(1.0, finer)
    whole: Any = pl.when(n_pieces == 1.0).then("latency_other")
    allowed = whole.otherwise(n_pieces * pl.col("piece_other"))
    bound = pairs.group_by(keys).agg(allowed=allowed.min())
    found = rows.join(bound, on=keys, maintain_order="left")
    return (found["latency"] > STALLED * found["allowed"]).to_numpy()


def _with_more_tokens(name: str) -> Any:
    """The least of `name` over as many tokens or more of the same share."""
    column: Any = pl.col(name)
    # A minimum passes over shares that have no piece from HBM.
    filled = column.fill_null(float("inf")).reverse().cum_min().reverse()
    return filled.over(*LAYER, *SHARE).alias(name)
