from pathlib import Path

import pytest

SPACE = """
model: llama-3.1-8b
gpu: [h100-sxm, h200-sxm]
engine: vllm@0.19
n_gpus: 8
precision: {weights: bf16, kv: bf16}
context: {isl: 1000, osl: 100}
layout: {tp: [1, 2]}
"""

STUDY = """
question: Which?
space: space.yaml
workload: {requests: 10 x concurrency}
load: closed_loop
objectives: [output_tok_per_s_per_gpu, tpot_mean]
"""


@pytest.fixture
def study_file(tmp_path: Path):
    """Write a study beside a small space; the given lines replace those of the same key."""

    def write(text: str = "", *, space: str = "batch: [1, 8]", base: str = STUDY) -> Path:
        (tmp_path / "space.yaml").write_text(_over(SPACE, space))
        path = tmp_path / "study.yaml"
        path.write_text(_over(base, text))
        return path

    return write


def _over(base: str, text: str) -> str:
    keys = {line.partition(":")[0] for line in text.splitlines() if line[:1] not in {"", " "}}
    kept = [line for line in base.splitlines() if line and line.partition(":")[0] not in keys]
    return text.strip("\n") + "\n" + "\n".join(kept) + "\n"
