"""`dse advise`: one JSON document with the contract's keys, a picture, and exit codes."""

import json

import pytest

from tests import commands

SWEEP = (
    "--model", "llama-2-7b", "--gpu", "h100-64gb", "--engine", "vllm@0.6",
    "--engine-args", "max_num_batched_tokens=512", "--isl", "250", "--osl", "131",
)  # fmt: skip


def run(capsys, *arguments):
    return commands.run(capsys, "advise", *arguments)


def test_json_has_the_keys_of_the_contract(capsys):
    code, out, _ = run(capsys, *SWEEP, "--json")
    found = json.loads(out)
    assert code == 0
    assert {
        "batch_cap", "throughput_tok_per_s", "plateau_tok_per_s", "latency_s", "kv_bytes_needed",
        "kv_bytes_freed", "curve", "uses",
    } <= found.keys()  # fmt: skip
    assert found["priced_by"].startswith("fit")
    assert found["limited_by"] == "plateau"
    # Mind the Memory Gap measured its plateau at 4,139 tok/s (max_num_seqs 256).
    assert found["plateau_tok_per_s"] == pytest.approx(4139, rel=0.08)
    assert found["curve"][0]["batch_cap"] == 1


def test_bounds_and_tolerance_reach_the_advisor(capsys):
    _, out, _ = run(capsys, *SWEEP, "--slo-tpot", "25ms", "--tolerance", "0.1", "--json")
    found = json.loads(out)
    assert found["limited_by"] == "latency"
    assert found["tpot_s"] < 0.025
    assert found["tolerance"] == 0.1
    _, out, _ = run(capsys, *SWEEP, "--slo-e2e", "3s", "--json")
    assert json.loads(out)["latency_s"] < 3.0


def test_the_picture_marks_the_knee(capsys):
    code, out, _ = run(capsys, *SWEEP)
    assert code == 0
    assert "max_num_seqs" in out
    assert out.count("◀") == 1
    assert "Priced by fit of" in out


def test_an_impossible_bound_exits_3(capsys):
    code, out, _ = run(capsys, *SWEEP, "--slo-tpot", "1ms", "--json")
    assert code == 3
    assert "no batch cap meets" in json.loads(out)["error"]["message"]


def test_a_bound_is_told_in_a_unit_that_shows_it(capsys):
    code, out, _ = run(capsys, *SWEEP, "--slo-ttft", "1us", "--json")
    assert code == 3
    assert json.loads(out)["error"]["message"].endswith(" ms of 1 µs")


def test_two_pools_are_refused(capsys):
    code, out, _ = run(
        capsys, "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--prefill", "gpus=1",
        "--decode", "gpus=1", "--json",
    )  # fmt: skip
    assert code == 2
    assert "one pool" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--trace", "requests.csv"), "takes no --trace"),
        (("--rate", "5"), "takes no --rate"),
        (("--concurrency", "5"), "takes no --concurrency"),
        (("--requests", "5"), "takes no --requests"),
        (("--slo-e2e", "0s"), "--slo-e2e of 0 s"),
        (("--isl", "8000"), "longer than the context of Llama-2-7B"),
    ],
)
def test_what_the_advisor_would_not_read_is_refused(capsys, more, words):
    kept = SWEEP[:8] + (() if "--isl" in more else SWEEP[8:10]) + SWEEP[10:]
    code, out, _ = run(capsys, *kept, *more, "--json")
    assert code == 2
    assert words in json.loads(out)["error"]["message"]


def test_outputs_of_one_token_have_no_tpot(capsys):
    code, out, _ = run(capsys, *SWEEP[:-1], "1")
    assert code == 0
    assert "nan" not in out
