"""`dse triage`: the keys of the contract, verdicts, and what it refuses."""

import pytest

from tests.pipeline.projects import dse

FLAGS = ("triage", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4096")
KEYS = {
    "residual", "position", "overlap_quality", "mbu", "mfu", "verdict", "budget", "thresholds",
}  # fmt: skip


def verdict(*more: str) -> str:
    found = dse(*FLAGS, *more, "--json").document()
    assert found.keys() >= KEYS
    assert found["thresholds"]["source"]
    return str(found["verdict"])


@pytest.mark.parametrize(
    ("measured", "expected"), [("1us", "below_floor"), ("1s", "escalate")]
)  # fmt: skip
def test_verdicts_of_a_decode_step(measured, expected):
    assert verdict("--measured-tpot", measured, "--concurrency", "8") == expected


def test_a_step_between_its_floors_is_inside():
    floors = dse("walls", *FLAGS[1:], "--concurrency", "8", "--json").document()
    decode = floors["steps"]["decode"]
    middle = (decode["t_opt_s"] + decode["t_sum_s"]) / 2
    assert verdict("--measured-tpot", f"{middle * 1e3} ms", "--concurrency", "8") == "inside"


def test_a_prompt_alone_is_judged_by_its_prefill():
    found = dse(*FLAGS, "--measured-ttft", "10s", "--json").document()
    assert (found["phase"], found["verdict"]) == ("prefill", "escalate")


def test_text_ends_with_the_next_question():
    said = dse(*FLAGS, "--measured-tpot", "50ms")
    assert said.code == 0
    for word in ("residual", "MBU", "Next:", "Profiler above"):
        assert word in said.out


def test_one_measurement_is_asked_for():
    assert dse(*FLAGS, "--json").code == 2
    both = dse(*FLAGS, "--measured-tpot", "1s", "--measured-ttft", "1s", "--json")
    assert dse(*FLAGS, "--measured-tpot", "1s", "--concurrency", "0").code == 2
    assert "one measurement" in both.document()["error"]["message"]


def test_what_no_engine_could_start_exits_3():
    said = dse("triage", "--model", "qwen2.5-7b", "--gpu", "h100-sxm", "--gpus", "8", "--layout",
               "tp=8", "--measured-tpot", "1s", "--json")  # fmt: skip
    assert said.code == said.document()["error"]["code"] == 3
