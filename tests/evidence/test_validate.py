"""Predictions against measured rows: errors, slices, and rows that come back."""

from pathlib import Path

import polars as pl
import pytest

from dse.evidence.case import Case
from dse.evidence.validate import PREDICTORS, predictions, slices, summary
from dse.evidence.validate_file import answers, only_graded, read_cases, sampled

HEAD = (
    "grade,model,gpu,n_gpus,tp,framework,framework_version,precision_weights,isl,osl,"
    "concurrency_or_batch,load_mode,ttft_ms,tpot_ms,tpot_stat,tok_s_per_gpu,tok_s_per_gpu_kind\n"
)
ROWS = (
    "A,Qwen/Qwen3-8B,H200,1,1,vllm,0.12.0,bf16,200,20,2,online closed-loop,30,5,mean,90,output\n"
    "B,Qwen/Qwen3-8B,H200,1,1,vllm,0.12.0,bf16,200,20,,offline throughput,,,,,\n"
    "A,Qwen/Qwen3-8B,H200,1,1,vllm,0.12.0,bf16,,20,2,online closed-loop,30,5,mean,,\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + ROWS)
    return path


def test_every_row_comes_back_with_its_answer(file: Path) -> None:
    frame, cases = read_cases(file)
    assert [case.key for case in cases] == ["2", "3", "4"]
    assert cases[0].measured == {"ttft_s": 0.03, "tpot_s": 0.005, "output_tok_per_s": 90.0}
    assert cases[2].reason == "the row does not say isl"
    found = answers(frame, predictions(only_graded(cases, "A"), predictor="floor"))
    assert found["status"].to_list() == ["ok", "skipped", "skipped"]
    assert found["reason"].to_list() == ["", "grade not asked for", "the row does not say isl"]
    # 16.4 GB of weights at 4.8 TB/s, in the file's own milliseconds.
    assert found["pred_tpot_ms"][0] == pytest.approx(3.2, rel=0.05)


@pytest.mark.parametrize("predictor", ["simulator", "saturation"])
def test_predictors_stay_above_the_floor(file: Path, predictor: str) -> None:
    _, cases = read_cases(file)
    found = PREDICTORS[predictor](cases[0])
    floor = PREDICTORS["floor"](cases[0])
    assert found["tpot_s"] > floor["tpot_s"]
    assert found["ttft_s"] > floor["ttft_s"]
    assert found["output_tok_per_s"] < floor["output_tok_per_s"]


def test_waiting_for_polls_adds_to_ttft_alone(file: Path) -> None:
    from dataclasses import replace

    case = read_cases(file)[1][0]
    at_once, polled = (PREDICTORS["simulator"](replace(case, poll_steps=n)) for n in (1, 21))
    assert polled["ttft_s"] - at_once["ttft_s"] == pytest.approx(10 * at_once["tpot_s"], rel=0.3)


def test_slices_count_what_has_an_error() -> None:
    frame = pl.DataFrame(
        {"gpu": ["a", "a", "b"], "error_tpot_s": [0.1, -0.3, None], "status": ["ok"] * 3}
    )
    found = {each.slice: each for each in slices(frame, ("gpu",), metrics=("tpot_s",))}
    assert set(found) == {"all", "gpu=a"}
    assert found["all"].n == 2
    assert found["all"].mape == pytest.approx(0.2)
    assert found["all"].bias == pytest.approx(-0.1)


def test_a_case_that_fits_nowhere_is_counted(file: Path) -> None:
    """Llama-3.1-405B in 16 bits does not fit one H200."""
    text = file.read_text().replace("Qwen/Qwen3-8B", "Llama-3.1-405B")
    file.write_text(text)
    _, cases = read_cases(file)
    document = summary(predictions(cases[:1]), ("gpu",))
    assert document["n_predicted"] == 0
    assert next(iter(document["n_skipped"])).startswith("Llama-3.1-405B")


def test_a_sample_leaves_the_others_unasked(file: Path) -> None:
    _, cases = read_cases(file)
    kept: list[Case] = sampled(cases, 1)
    assert sum(case.deployment is not None for case in kept) == 1
    assert len(kept) == 3
