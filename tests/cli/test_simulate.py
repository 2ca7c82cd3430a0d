"""`dse simulate`: the keys of the contract, text, logs, traces and failures."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dse.cli import main

FLAGS = ["simulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--isl", "uniform:200:400"]
FLAGS += ["--osl", "20", "--concurrency", "4", "--requests", "12", "--tier", "roofline"]
LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
KEYS = {
    *LATENCIES, "request_per_s", "output_tok_per_s", "total_tok_per_s", "output_tok_per_s_per_gpu",
    "goodput_req_per_s", "slo_attainment", "n_steps", "n_preemptions", "prefix_hit_fraction",
    "kv_peak_fraction", "mfu", "mbu", "step_breakdown", "cpu_s",
}  # fmt: skip


def code(*argv: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(argv))
    return int(stopped.value.code or 0)


def told(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert code(*FLAGS, *more, "--json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--slo-ttft", "10s", "--slo-tpot", "1s")
    assert found.keys() >= KEYS
    for name in LATENCIES:
        assert set(found[name]) == {"mean", "p50", "p90", "p95", "p99"}
    assert found["slo_attainment"] == 1.0
    assert found["goodput_req_per_s"] == pytest.approx(found["request_per_s"])
    assert {"family", "seconds"} == set(found["step_breakdown"][0])


def test_seeds_change_the_requests_and_nothing_else_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, again, other = told(capsys), told(capsys), told(capsys, "--seed", "1")
    assert one["ttft_s"] == again["ttft_s"] != other["ttft_s"]


def test_text_has_a_histogram_and_a_breakdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*FLAGS) == 0
    text = capsys.readouterr().out
    for word in ("TTFT", "TPOT", "█", "gemm", "goodput", "Served by"):
        assert word in text


def test_log_and_timeline(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, chart = tmp_path / "log.csv", tmp_path / "run.html"
    told(capsys, "--log", str(log), "--timeline", str(chart))
    kinds = set(pl.read_csv(log)["kind"])
    assert {"queued", "admitted", "step", "first_token", "finished"} <= kinds
    assert chart.stat().st_size > 1000


def test_a_trace_brings_its_own_requests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,isl,osl\n0,100,5\n0.5,200,10\n", "utf-8")
    assert code(*FLAGS[:5], "--trace", str(trace), "--tier", "roofline", "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_requests"] == 2


def test_what_does_not_fit_exits_3(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["simulate", "--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--json"]
    assert code(*flags) == 3
    assert "left for KV" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--rate", "5"), "--rate is given beside --trace"),
        (("--concurrency", "5"), "--concurrency is given beside --trace"),
        (("--isl", "500"), "--isl is given beside --trace"),
        (("--prefix-cached", "5"), "--prefix-cached is given beside --trace"),
        (("--requests", "3"), "which has 2"),
    ],
)
def test_a_flag_that_a_trace_would_override_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,isl,osl\n0,100,5\n0.5,200,10\n", "utf-8")
    assert code(*FLAGS[:5], "--trace", str(trace), *more, "--json") == 2
    assert words in json.loads(capsys.readouterr().out)["error"]["message"]


def test_an_unknown_tier_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*FLAGS[:5], "--tier", "exact", "--json") == 2
    assert "no kernel tier 'exact'" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("flag", ["--log", "--timeline"])
def test_a_file_that_cannot_be_written_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str
) -> None:
    assert code(*FLAGS, flag, str(tmp_path / "none" / "run.html"), "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "cannot be written" in error["message"]
    assert error["remedy"] == f"give another {flag}"


def test_outputs_of_one_token_have_no_tpot(capsys: pytest.CaptureFixture[str]) -> None:
    assert code(*FLAGS[:5], "--osl", "1", "--tier", "roofline") == 0
    assert "nan" not in capsys.readouterr().out
