"""Expert tables made to describe a grouped GEMM: rows of a badly chosen kernel are found."""

import numpy as np
import polars as pl

from dse.evidence.kernels_moe import mistuned

LAYER = {
    "hidden_size": 4096,
    "inter_size": 1024,
    "topk": 10,
    "num_experts": 512,
    "distribution": "balanced",
}


def share(latency_ms: list[float], tokens: list[int], ep: int = 1, tp: int = 1) -> pl.DataFrame:
    """One share of the layer under growing batches."""
    rows = {"num_tokens": tokens, "latency": latency_ms, "moe_ep_size": ep, "moe_tp_size": tp}
    return pl.DataFrame(rows).with_columns(**{k: pl.lit(v) for k, v in LAYER.items()})


def found(*shares: pl.DataFrame, cold: bool = True) -> list[bool]:
    rows = pl.concat(shares)
    return mistuned(rows, np.full(len(rows), cold)).tolist()


def test_a_row_slower_than_more_tokens_of_the_same_share() -> None:
    """An H200's TensorRT-LLM experts in 16 bits: 2.48 ms for 768 tokens, 1.58 for 6,144."""
    assert found(share([2.480, 1.576, 4.243], [768, 6144, 8192], ep=8)) == [True, False, False]


def test_a_row_slower_than_the_share_that_holds_it() -> None:
    whole, eighth = share([1.0], [64]), share([1.4], [64], ep=8)
    assert found(whole, eighth) == [False, True]
    assert found(whole, share([1.3], [64], ep=8)) == [False, False]


def test_a_row_slower_than_its_parts_in_turn() -> None:
    """Half of the experts twice, or half of the width twice, is the whole."""
    for part in ({"ep": 2}, {"tp": 2}):
        assert found(share([3.0], [64]), share([1.0], [64], **part)) == [True, False]
        assert found(share([2.5], [64]), share([1.0], [64], **part)) == [False, False]


def test_parts_whose_weights_stay_in_the_l2_say_nothing() -> None:
    assert found(share([9.0], [64]), share([1.0], [64], ep=2), cold=False) == [False, False]
    # A larger share has more weights still, so it speaks whatever the L2 holds.
    assert found(share([1.0], [64]), share([1.4], [64], ep=2), cold=False) == [False, True]


def test_a_share_that_trades_degrees_counts_its_parts() -> None:
    """TP4 of EP1 holds every expert at a quarter of the width: two of them hold TP2 of EP8."""
    traded = share([1.0], [64], tp=4)
    assert found(share([2.6], [64], tp=2, ep=8), traded) == [False, False]
    assert found(share([2.8], [64], tp=2, ep=8), traded) == [True, False]


def test_layers_are_compared_with_themselves_and_rows_keep_their_order() -> None:
    other = share([0.1, 0.2], [64, 128]).with_columns(distribution=pl.lit("power_law_1.2"))
    one = share([3.0, 1.0, 1.1], [64, 256, 128])
    assert found(one, other) == [True, False, False, False, False]
