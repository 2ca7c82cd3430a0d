"""`dse validate`: one document, every row answered, sources that exclude each other."""

import csv
import json
from pathlib import Path

import pytest

from dse.base.errors import UserError
from dse.cli.validate import validate

ROWS = (
    "grade,model,gpu,n_gpus,tp,framework,framework_version,precision_weights,isl,osl,"
    "concurrency_or_batch,load_mode,ttft_ms,tpot_ms,tpot_stat\n"
    "A,Qwen/Qwen3-8B,H200,1,1,vllm,0.12.0,bf16,200,20,2,online closed-loop,30,5,mean\n"
    "B,Qwen/Qwen3-8B,H200,1,1,vllm,0.12.0,bf16,200,20,2,online closed-loop,30,5,mean\n"
    "A,Unheard-9B,H200,1,1,vllm,0.12.0,bf16,200,20,2,online closed-loop,30,5,mean\n"
)


def test_a_document_and_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "preds.csv"
    rows.write_text(ROWS)
    assert validate(rows, grades="A", out=out, workers="0", json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["n_predicted"] == 1
    assert document["n_skipped"] == {"grade not asked for": 1, "no model in the catalog": 1}
    whole = next(s for s in document["slices"] if (s["slice"], s["metric"]) == ("all", "tpot_s"))
    assert set(whole) == {"slice", "metric", "n", "mape", "median_ape", "bias", "coverage_80"}
    with out.open() as file:
        written = list(csv.DictReader(file))
    assert [row["status"] for row in written] == ["ok", "skipped", "skipped"]
    for name in ("ttft_ms", "tpot_ms", "output_tok_s_total", "total_tok_s", "e2e_ms"):
        low, value, high = (float(written[0][f"{part}_{name}"]) for part in ("lo", "pred", "hi"))
        assert low < high
        assert value > 0.0


def test_the_floor_is_below_the_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(ROWS)
    assert validate(rows, predictor="floor", grades="A", json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["slices"][0]["bias"] < 0.0


def test_one_source_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one source"):
        validate(tmp_path / "rows.csv", silicon=True)
    with pytest.raises(UserError, match="one source"):
        validate()


def test_an_unknown_predictor_lists_those_known(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(ROWS)
    with pytest.raises(UserError, match="no predictor") as raised:
        validate(rows, predictor="oracle")
    assert "saturation" in raised.value.remedy
