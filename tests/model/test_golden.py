"""KV bytes and parameter counts against published or measured numbers (tests/golden)."""

from pathlib import Path

import pytest

from dse.base.source import read
from dse.catalog import Catalog
from dse.hardware import DType
from dse.model.attention import ATTENTIONS
from dse.model.shard import WHOLE

GOLDEN = Path(__file__).parents[1] / "golden"
KV = read(GOLDEN / "kv_bytes.yaml", list)
PARAMETERS = read(GOLDEN / "parameters.yaml", list)
MIB = 2**20


def kinds_in(model: str) -> set[str]:
    return {group.attention.kind for group in Catalog.load().model(model).layers}


@pytest.mark.parametrize("row", KV, ids=lambda row: f"{row['model']}-{row['kv']}")
def test_bytes_per_token_and_request(row: dict) -> None:
    model, kv = Catalog.load().model(row["model"]), DType(row["kv"])
    layers = list(model.expanded())
    per_token = sum(layer.attention.kv_bytes_per_token(WHOLE, kv) for layer in layers)
    state = sum(layer.attention.state_bytes(WHOLE, kv) for layer in layers)
    assert per_token == pytest.approx(row["per_token"], rel=row.get("tolerance", 0))
    assert state / MIB == pytest.approx(row.get("state", state / MIB), rel=row.get("tolerance", 0))
    assert ("state" in row) or ("linear" in row["kinds"]) or state == 0
    assert row["source"]


@pytest.mark.parametrize("row", KV, ids=lambda row: f"{row['model']}-{row['kv']}")
def test_a_row_proves_kinds_that_its_model_has(row: dict) -> None:
    assert set(row["kinds"]) <= kinds_in(row["model"])


def test_every_attention_kind_has_a_golden_row() -> None:
    assert {kind for row in KV for kind in row["kinds"]} == set(ATTENTIONS)


@pytest.mark.parametrize("row", PARAMETERS, ids=lambda row: row["model"])
def test_parameters_are_within_half_a_percent(row: dict) -> None:
    model = Catalog.load().model(row["model"])
    assert model.parameters() / 1e9 == pytest.approx(row["total"], rel=0.005)
    if "active" in row:
        assert model.active_parameters() / 1e9 == pytest.approx(row["active"], rel=0.01)


def test_ten_thousand_tokens_in_gib() -> None:
    # llm-d-planner tests/integration/test_capacity_planner.py, five decimals.
    catalog = Catalog.load()
    for name, expected in (
        ("deepseek-v3", 0.65446),
        ("deepseek-v2", 0.64373),
        ("qwen2.5-0.5b", 0.11444),
    ):
        layers = catalog.model(name).expanded()
        per_token = sum(g.attention.kv_bytes_per_token(WHOLE, DType.BF16) for g in layers)
        assert round(10_000 * per_token / 2**30, 5) == expected


def test_kv_is_blind_to_weight_quantisation() -> None:
    catalog = Catalog.load()
    plain, quantised = catalog.model("qwen3-32b"), catalog.model("qwen3-32b-fp8")
    assert plain.layers == quantised.layers
    assert plain.checkpoint is DType.BF16
    assert quantised.checkpoint is DType.FP8_BLOCK
