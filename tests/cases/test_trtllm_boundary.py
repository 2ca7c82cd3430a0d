"""Measured maximum batches of TensorRT-LLM (aiconfigurator, test_trtllm_kv_cache_capacity.py)."""

import csv

import pytest

MODELS = {"Qwen/Qwen3-32B-FP8": "qwen3-32b-fp8", "meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b"}
GPUS = {"h100_sxm": "h100-sxm", "gb300": "gb300"}
# The benchmark's engine is built for this many tokens beyond prompt and answer.
RESERVED_TOKENS = 1_000


@pytest.fixture(scope="module")
def rows(measured_data):
    with (measured_data / "truth" / "trtllm_kv_boundary_dev.csv").open() as file:
        return list(csv.DictReader(file))


def predicted(memory, row):
    found = memory(
        MODELS[row["model"]],
        GPUS[row["system"]],
        layout=f"tp={row['tp']}",
        engine="trtllm",
        hbm_fraction=row["free_gpu_memory_fraction"],
    )
    return found.b_max(int(row["isl"]) + int(row["osl"]) + RESERVED_TOKENS)


def test_every_row_within_five_percent(memory, rows):
    errors = {
        tuple(row.values()): predicted(memory, row) / float(row["measured_max_batch"]) - 1.0
        for row in rows
    }
    assert len(errors) == 48
    assert not {row: error for row, error in errors.items() if abs(error) > 0.05}


def test_monotone_in_tensor_parallel(memory, rows):
    groups = {}
    for row in rows:
        key = tuple(
            value for name, value in row.items() if name not in {"tp", "measured_max_batch"}
        )
        groups.setdefault(key, {})[int(row["tp"])] = predicted(memory, row)
    for batches in groups.values():
        ordered = [batches[tp] for tp in sorted(batches)]
        assert ordered == sorted(ordered)


def test_pool_rule_of_one_published_row(memory):
    # 27 requests of 2,048/2,048 on one H100 at 0.8 of what is free; the vLLM rule would hold fewer.
    found = memory("qwen3-32b-fp8", "h100-sxm", engine="trtllm", hbm_fraction="0.8")
    assert found.b_max(5_096) == pytest.approx(27, abs=1)
