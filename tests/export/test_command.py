"""`dse export`: from flags and from a stored point; one JSON document, exit codes, refusals."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dse.catalog import Catalog
from dse.cli._deployment import deployment_of
from dse.cli.export import flags_of
from dse.export import EXPORTERS, longest, parse, with_batch
from dse.run.identity import deployment_facts, deployment_id
from dse.store import Store
from tests import commands

LLAMA = ("--model", "llama-3.3-70b", "--gpu", "h200-sxm", "--weights", "fp8", "--gpus", "8")
TOGETHER = {
    "model": "qwen3-32b",
    "gpu": "h200-sxm",
    "fabric": "nvlink4-8",
    "engine": "vllm@0.19",
    "weights": "fp8",
    "kv": "bf16",
    "n_gpus": 8,
    "tp": 2,
    "dp": 1,
    "ep": 1,
    "pp": 1,
    "cp": 1,
    "n_replicas": 4,
    "isl_tokens": 2000,
    "osl_tokens": 500,
    "batch": 32,
    "concurrency": 128,
}
APART = {
    "model": "deepseek-v3.2",
    "gpu": "h20-96gb",
    "engine": "sglang@0.5",
    "weights": "fp8_block",
    "kv": "bf16",
    "n_gpus": 32,
    "prefill_tp": 16,
    "prefill_ep": 1,
    "prefill_n_replicas": 1,
    "decode_tp": 1,
    "decode_dp": 16,
    "decode_ep": 16,
    "decode_n_replicas": 1,
    "isl_tokens": 8192,
    "osl_tokens": 1024,
    "concurrency": 100,
}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return commands.run(capsys, "export", *arguments)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two points, known by what the flags of their rows give."""
    path = tmp_path / "known.duckdb"
    with Store.open(path) as opened:
        for name, row in (("a" * 32, TOGETHER), ("b" * 32, APART)):
            deployment = deployment_of(flags_of(row))
            whose = deployment_id(deployment)
            facts = {"deployment_id": whose, "facts": deployment_facts(deployment)}
            opened.append(pl.DataFrame([facts]), "deployment")
            opened.append(
                pl.DataFrame([{"point_id": name, "deployment_id": whose, **row}]), "point"
            )
    return path


def test_json_has_the_keys_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *LLAMA, "--layout", "tp=4", "--engine", "vllm", "--json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert {"command", "flags", "env", "warnings"} <= found.keys()
    assert found["flags"]["--tensor-parallel-size"] == "4"
    assert [each["copies"] for each in found["processes"]] == [2]
    back = parse(found["command"], EXPORTERS["vllm"](), Catalog.load())
    assert back.pools[0].n_replicas == 2


def test_a_script_is_all_that_stdout_gets(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *LLAMA, "--layout", "tp=4", "--context", "16Ki")
    assert code == 0
    assert out.startswith("# dse export: engine=vllm@")
    assert "--max-model-len 16384" in out


def test_a_stored_point_by_the_start_of_its_id(
    capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    code, out, err = run(capsys, "aaaa", "--store", str(store))
    assert code == 0
    assert "--max-model-len 3012" in out
    assert "at most 2,500 tokens were simulated, 512 are room" in out
    assert "--max-num-seqs 32 " in out
    assert "simulated with 32 requests in flight in each decoding replica\n" in out
    assert "# start 4 of these" in out
    assert "differ" not in err


def test_a_stored_point_with_prefill_and_decode_apart(
    capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    code, out, _ = run(capsys, "bb", "--store", str(store), "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found["flags"]) == {"prefill", "decode"}
    assert found["flags"]["decode"]["--dp-size"] == "16"
    assert found["warnings"] == []
    heads = {"PREFILL_HEAD_ADDRESS", "DECODE_HEAD_ADDRESS"}
    assert set(found["env"]) == {*heads, "PREFILL_URL", "DECODE_URL"}
    # 100 in flight are 7 in each of 16 ranks, rounded up; SGLang divides its limit by the ranks.
    assert found["flags"]["decode"]["--max-running-requests"] == str(7 * 16)
    assert found["flags"]["prefill"]["--max-running-requests"] == "2048"
    assert "max_running_requests // dp_size" in found["command"]


@pytest.mark.parametrize(
    ("study", "tokens", "why"),
    [
        ({}, 3012, "at most 2,500 tokens were simulated, 512 are room"),
        ({"workload": {"lengths": {"uniform": [0.5, 4.0]}}}, 11000, "at most 10,000"),
        ({"workload": {"lengths": {"uniform": [1.0, 16.0]}}}, 40960, "960 are room"),
        ({"workload": {"lengths": {"lognormal": 0.8}}}, 40960, "no longest request"),
        ({"workload": {"sessions": {"turns": 4}}}, 40960, "no longest request"),
        ({"load": {"trace": "chat.csv"}}, 40960, "no longest request"),
    ],
)
def test_the_context_holds_the_longest_request_and_room(
    study: dict[str, Any], tokens: int, why: str
) -> None:
    found = longest(TOGETHER, json.dumps(study), deployment_of(flags_of(TOGETHER)))
    assert found.tokens == tokens
    assert why in found.why


def test_a_kv_pool_without_room_is_filled() -> None:
    row = {**TOGETHER, "isl_tokens": 16_000}
    small = replace(deployment_of(flags_of(row)), kv_pool_bytes=16_600 * 131_072.0)
    found = longest(row, None, small)
    assert 16_500 < found.tokens <= 16_600
    assert "all that the KV pool holds" in found.why


def test_a_rate_keeps_the_limit_that_was_simulated() -> None:
    deployment = deployment_of(flags_of(TOGETHER))
    row = {"batch": None, "concurrency": None, "req_per_s": 4.0}
    same, remark = with_batch(deployment, row)
    assert same == deployment
    assert "under a rate, at most 1,024 requests in a rank" in remark


def test_what_changed_since_the_run_is_said(
    capsys: pytest.CaptureFixture[str], store: Path
) -> None:
    with Store.open(store) as opened:
        row = {"point_id": "c" * 32, "deployment_id": "0" * 32, **TOGETHER}
        opened.append(pl.DataFrame([row]), "point")
    _, out, _ = run(capsys, "cc", "--store", str(store), "--json")
    assert "differ from what the point was run with" in json.loads(out)["warnings"][0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*LLAMA[:4], "--layout", "tp=1"), 3, "vllm cannot start this: weights"),
        ((*LLAMA[:-1], "6", "--layout", "tp=4"), 3, "6 GPUs % 4 GPUs of a replica = 2"),
        ((*LLAMA, "--layout", "tp=4", "--engine", "ideal"), 2, "nothing is exported for 'ideal'"),
        (("zz", "--store", "STORE"), 2, "'zz' is no point_id"),
        (("dd", "--store", "STORE"), 2, "has no point 'dd'"),
        (("aa", "--store", "absent.duckdb"), 2, "no store absent.duckdb"),
        ((), 2, "--model is missing"),
    ],
)
def test_errors(
    capsys: pytest.CaptureFixture[str],
    store: Path,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    given = [str(store) if word == "STORE" else word for word in arguments]
    found, out, _ = run(capsys, *given, "--json")
    assert found == code
    assert message in json.loads(out)["error"]["message"]


def test_a_process_says_in_words_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *LLAMA, "--layout", "tp=4", "--engine", "vllm")
    assert "# role: both (prefill and decode), replicas: 2, node: 1 of 1\n" in out


def test_an_engine_that_makes_no_fp8_weights_asks_for_a_checkpoint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, err = run(capsys, *LLAMA, "--layout", "tp=4", "--engine", "trtllm")
    assert "./checkpoints/llama-3.3-70b-fp8" in out
    assert "put a fp8 checkpoint of it, made or downloaded, at ./checkpoints" in err
    _, out, err = run(capsys, *LLAMA, "--layout", "tp=4", "--engine", "vllm")
    assert "./checkpoints" not in out + err
