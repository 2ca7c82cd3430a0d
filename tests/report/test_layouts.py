"""Layouts in the field's short names, and the families that charts give shapes."""

import polars as pl
import pytest

from dse.report.layouts import busy_replicas, described, family, is_apart, label, sentence

BASE = {"model": "m", "gpu": "h100-sxm", "n_gpus": 8, "weights": "fp8", "kv": "bf16"}
APART = {
    "prefill_tp": 4,
    "prefill_n_replicas": 2,
    "decode_tp": 1,
    "decode_dp": 8,
    "decode_ep": 8,
    "decode_n_replicas": 3,
}


@pytest.mark.parametrize(
    ("row", "name", "kind"),
    [
        ({"tp": 1, "n_replicas": 8}, "TP1 ×8", "single GPU"),
        ({"tp": 8, "n_replicas": 1}, "TP8", "TP"),
        ({"tp": 4, "pp": 2, "n_replicas": 1}, "TP4 PP2", "TP + PP"),
        ({"tp": 8, "ep": 8, "n_replicas": 2}, "TEP8 ×2", "TEP"),
        ({"tp": 1, "dp": 8, "ep": 8, "n_replicas": 1}, "EP8+DPA", "EP + DP attention"),
        ({"tp": 2, "dp": 4, "n_replicas": 1}, "TP2 DPA4", "DP attention"),
        (APART, "P TP4 ×2 | D EP8+DPA ×3", "apart"),
    ],
)
def test_names(row: dict[str, int], name: str, kind: str) -> None:
    assert label(row) == name
    assert family(row) == kind
    assert is_apart(row) == (kind == "apart")


def test_replicas_that_hold_requests() -> None:
    assert busy_replicas({"tp": 2, "n_replicas": 4}) == 4
    assert busy_replicas(APART) == 3


def test_sentences() -> None:
    together = {**BASE, "tp": 2, "n_replicas": 4, "engine": "vllm@0.19"}
    words = "m in fp8 with bf16 KV on 8 × h100-sxm, 4 replicas of TP2 under vllm@0.19"
    assert sentence(together) == words
    apart = {**BASE, **APART}
    assert "2 prefill replicas of TP4 and 3 decode replicas of EP8+DPA" in sentence(apart)


def test_every_row_is_described_where_degrees_are_missing() -> None:
    rows = pl.DataFrame(
        [{**BASE, "tp": 2, "n_replicas": 4}, {**BASE, **APART}, {**BASE, "tp": 2, "n_replicas": 4}],
        infer_schema_length=None,
    )
    found = described(rows)
    assert found["layout"].to_list() == ["TP2 ×4", "P TP4 ×2 | D EP8+DPA ×3", "TP2 ×4"]
    assert found["precision"].to_list() == ["fp8 / bf16"] * 3


def test_no_rows_are_described_too() -> None:
    found = described(pl.DataFrame(schema={"point_id": pl.String, "reason": pl.String}))
    assert found.is_empty()
    assert {"point_id", "layout", "family", "precision", "context"} <= set(found.columns)
