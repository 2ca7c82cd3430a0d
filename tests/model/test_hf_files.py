"""Every public config in the measured data imports to the model that its table describes.

The table states totals as counted (`computed`) or as an announcement rounds them (`stated`).
"""

import csv
from pathlib import Path

import pytest

from dse.hardware import DType
from dse.model import Model
from dse.model.hf import load
from dse.model.shard import WHOLE

TOLERANCE = 0.005
# The table leaves the indexer's keys out, and its parameters too.
INDEXED = {"DeepSeek-V3.2": 61 * 132, "GLM-5": 78 * 132, "MiniMax-M3": 57 * 256}


@pytest.fixture(scope="module")
def folder(measured_data: Path) -> Path:
    return measured_data / "catalog"


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "models.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["raw_config"]]


def imported(folder: Path, name: str) -> Model:
    return load(folder / "configs" / name)


def test_every_file_imports(folder: Path) -> None:
    files = sorted((folder / "configs").glob("*.json"))
    models = [file for file in files if not file.stem.endswith("_hf_quant")]
    assert len(files) >= 148
    for file in models:
        found = load(file)
        assert found.parameters() > 1e8, file.name
        assert found.n_layers > 10, file.name


def test_totals_match_the_table(folder: Path) -> None:
    wrong = []
    for row in rows(folder):
        found = imported(folder, row["raw_config"])
        total = found.parameters() / 1e9
        computed, stated = row["total_params_B_computed"], row["total_params_B_stated"]
        if computed:
            is_right = total == pytest.approx(float(computed), rel=TOLERANCE)
        else:
            encoders = found.multimodal.parameters / 1e9 if found.multimodal else 0.0
            rounded = max(0.5, 0.01 * float(stated or 0))  # "2.8T", "26B"
            is_right = not stated or abs(total + encoders - float(stated)) <= rounded + 1.1
        if not is_right:
            wrong.append((row["model"], total, computed or stated))
    assert wrong == []


def test_kv_bytes_match_the_table(folder: Path) -> None:
    wrong = []
    for row in rows(folder):
        if not row["kv_bytes_per_token_bf16"]:
            continue
        layers = imported(folder, row["raw_config"]).expanded()
        found = sum(layer.attention.kv_bytes_per_token(WHOLE, DType.BF16) for layer in layers)
        found -= INDEXED.get(row["model"], 0)
        if found != float(row["kv_bytes_per_token_bf16"]):
            wrong.append((row["model"], found, row["kv_bytes_per_token_bf16"]))
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "checkpoint", "quantised"),
    [
        ("openai--gpt-oss-120b", DType.MXFP4, {"expert"}),
        ("moonshotai--Kimi-K2.5", DType.INT4_G32, {"expert"}),
        ("nvidia--MiniMax-M3-NVFP4", DType.NVFP4, {"expert"}),
        ("nvidia--Gemma-4-26B-A4B-NVFP4", DType.NVFP4, {"expert"}),
        ("nvidia--Gemma-4-31B-IT-NVFP4", DType.NVFP4, {"dense_ffn"}),
        ("nvidia--Qwen3.6-27B-NVFP4", DType.NVFP4, {"dense_ffn", "head"}),
        ("infersim__qwen3.5-122B-A10B_config", DType.FP8_BLOCK, {"state", "expert"}),
        ("deepseek-ai--DeepSeek-V3", DType.FP8_BLOCK, {"attention", "expert"}),
    ],
)
def test_formats_of_checkpoints(
    folder: Path, name: str, checkpoint: DType, quantised: set[str]
) -> None:
    found = imported(folder, f"{name}.json")
    assert found.checkpoint is checkpoint
    assert quantised <= set(found.quantised)


def test_mixed_27b_is_21_9_gb_and_not_13_5(folder: Path) -> None:
    # vllm-project/recipes SKILL.md: parameters × bytes × 1.2 is wrong for mixed NVFP4 checkpoints.
    found = imported(folder, "nvidia--Qwen3.6-27B-NVFP4.json")
    formats = {
        cls: found.exceptions.get(cls, found.checkpoint if cls in found.quantised else DType.BF16)
        for cls in ("attention", "state", "dense_ffn", "head", "embedding", "norm")
    }
    layers = [t for group in found.expanded() for t in group.tensors(found.d_model, WHOLE)]
    tensors = [*layers, *found.embedding_tensors()]
    size = sum(t.total_elements * formats[t.cls].bytes_per_element for t in tensors)
    draft = found.speculative
    assert draft is not None
    module = sum(t.total_elements for t in draft.layer.tensors(found.d_model, WHOLE))
    beside = 2 * (module + 2 * found.d_model**2 + found.multimodal.parameters)
    assert (size + beside) / 1e9 == pytest.approx(21.9, rel=0.1)
    assert size / 1e9 > 13.5
