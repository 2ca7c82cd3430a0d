"""Batch triage: one verdict a row, the others counted by reason."""

from pathlib import Path

import polars as pl
import pytest

from dse.base.errors import UserError
from dse.evidence.triage_rows import triage_rows

HEAD = (
    "model,gpu,n_gpus,tp,framework,framework_version,precision_weights,isl,osl,"
    "concurrency_or_batch,load_mode,spec_decode,ttft_ms,tpot_ms,tpot_stat,e2e_latency_ms\n"
)
CLOSED = "online closed-loop max-concurrency"


def table(path: Path, *rows: str) -> Path:
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def test_each_row_gets_a_verdict_or_a_reason(tmp_path: Path) -> None:
    """Qwen3-32B in 16 bits on one H200 reads 65.5 GB a step: 13.7 ms at 4.8 TB/s."""
    path = table(
        tmp_path / "rows.csv",
        f"Qwen/Qwen3-32B,H200,1,1,vllm,0.12.0,bf16,1000,1000,4,{CLOSED},none,200,18,median,",
        f"Qwen/Qwen3-32B,H200,1,1,vllm,0.12.0,bf16,1000,1000,4,{CLOSED},none,200,9,median,",
        f"Qwen/Qwen3-32B,H200,1,1,vllm,0.12.0,bf16,1000,1000,4,{CLOSED},none,200,180,median,",
        f"Qwen/Qwen3-32B,H200,1,1,vllm,0.12.0,bf16,1000,1000,4,{CLOSED},eagle,200,9,median,",
        f"Qwen/Qwen3-32B,H200,1,1,vllm,0.12.0,bf16,1000,1000,4,{CLOSED},none,200,,,",
        "Qwen/Qwen3-32B,H200,1,1,vllm,0.12.0,bf16,128,2048,1,static batch,none,,,,40000",
    )
    out = tmp_path / "verdicts.csv"
    summary = triage_rows(path, out)
    found = pl.read_csv(out)
    assert found["verdict"][1] == "below_floor"
    assert found["verdict"][2] == "escalate"
    assert found["residual"][0] == pytest.approx(18 / 13.9, rel=0.05)
    assert found["residual"][5] == pytest.approx(40_000 / 2048 / 13.7, rel=0.05)
    assert sum(summary["verdicts"].values()) == 4
    assert summary["n_skipped"] == {
        "speculative: the acceptance is not stated": 1,
        "no TPOT is measured": 1,
    }
    assert found.height == 6


def test_the_input_is_not_written_over(tmp_path: Path) -> None:
    path = table(tmp_path / "rows.csv")
    with pytest.raises(UserError, match="is the input"):
        triage_rows(path, path)
