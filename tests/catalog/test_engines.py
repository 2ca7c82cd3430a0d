"""Engine profiles against what engines print: weights, KV left, blocks, maximum batches."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from dse.catalog import Catalog
from dse.cost.memory import RankMemory, rank_memory
from dse.hardware import DType
from dse.model.precision import Precision
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.legality import check

CATALOG = Catalog.load()
GIB = 2**30


def memory(model: str, gpu: str, engine: str, tp: int = 1, **settings: float) -> RankMemory:
    found, card = CATALOG.model(model), CATALOG.gpu(gpu)
    stored = Precision(
        weights=found.checkpoint, quantised=found.quantised, exceptions=found.exceptions
    )
    pool = Pool(
        gpu=card,
        fabric=CATALOG.fabric(card.fabric),
        layout=Layout(tp=tp),
        engine=replace(CATALOG.engine(engine), **settings),
    )
    return rank_memory(Deployment(model=found, precision=stored, pools=(pool,)), pool)


def test_blocks_that_vllm_logs_on_an_rtx_4090() -> None:
    # LLMServingSim bench/examples/RTX4090: vLLM 0.19, 2,588 blocks of 16.
    found = memory(
        "llama-3.1-8b", "rtx-4090", "vllm@0.19", max_num_batched_tokens=2048, max_num_seqs=256
    )
    assert found.n_blocks == pytest.approx(2588, rel=0.03)
    assert found.kv_pool_tokens() == found.n_blocks * 16


# llm-d docs/empirical-vllm-memory-results.md, GiB per GPU: weights, and KV where it is printed.
@pytest.mark.parametrize(
    ("model", "tp", "fraction", "weights", "kv"),
    [
        ("llama-3.1-8b", 1, 0.9, 14.99, 51.38),
        ("qwen3-32b", 1, 0.9, 61.03, 4.45),
        ("qwen3-32b", 2, 0.9, 30.59, 34.49),
        ("llama-3.3-70b-fp8", 1, 0.9, 67.72, -1.44),
        ("llama-3.3-70b-fp8", 2, 0.9, 33.88, 32.0),
        ("gpt-oss-20b", 1, 0.9, 13.47, None),
        ("gpt-oss-120b", 1, 0.95, 64.38, 3.33),
        ("mistral-small-3.2-24b", 1, 0.95, 44.76, None),
    ],
)
def test_weights_and_kv_that_vllm_logs_on_an_h100(
    model: str, tp: int, fraction: float, weights: float, kv: float | None
) -> None:
    found = memory(model, "h100", "vllm@0.11", tp, hbm_fraction=fraction)
    assert found.weight_bytes / GIB == pytest.approx(weights, rel=0.02)
    if kv is not None:
        assert found.kv_pool_bytes / GIB == pytest.approx(kv, abs=0.2)
        assert found.fits is (kv > 0)


# Mind the Memory Gap, arXiv:2503.08311: blocks of 16 that vLLM printed on a 64 GB H100.
@pytest.mark.parametrize(
    ("model", "max_num_seqs", "blocks"),
    [
        ("llama-2-7b", 1, 5677),
        ("llama-2-7b", 512, 5608),
        ("llama-2-13b", 1, 2671),
        ("llama-2-13b", 512, 2628),
        ("opt-1.3b", 1, 18597),
        ("opt-1.3b", 768, 18135),
        ("opt-2.7b", 1, 10644),
        ("opt-2.7b", 512, 10462),
    ],
)
def test_sampling_takes_memory_from_the_pool(model: str, max_num_seqs: int, blocks: int) -> None:
    found = memory(model, "h100-64gb", "vllm@0.6", max_num_seqs=max_num_seqs)
    assert found.n_blocks == pytest.approx(blocks, rel=0.005)


def test_tensorrt_llm_takes_a_share_of_what_is_free() -> None:
    # aiconfigurator test_trtllm_kv_cache_capacity.py: 27 at TP1, 2,048 + 2,048 + 1,000 tokens.
    found = memory("qwen3-32b-fp8", "h100", "trtllm", hbm_fraction=0.8)
    assert found.b_max(5096) == 27


def test_measured_maximum_batches_of_tensorrt_llm(measured_data: Path) -> None:
    names = {"Qwen/Qwen3-32B-FP8": "qwen3-32b-fp8", "meta-llama/Meta-Llama-3.1-8B": "llama-3.1-8b"}
    with (measured_data / "truth" / "trtllm_kv_boundary_dev.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 48
    found: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for row in rows:
        tp = int(row["tp"])
        fraction = float(row["free_gpu_memory_fraction"])
        rank = memory(names[row["model"]], row["system"], "trtllm", tp, hbm_fraction=fraction)
        batch = rank.b_max(int(row["isl"]) + int(row["osl"]) + 1000)
        assert batch == pytest.approx(int(row["measured_max_batch"]), rel=0.05), row
        key = (row["system"], row["model"], row["isl"], row["osl"], str(fraction))
        found.setdefault(key, []).append((tp, batch))
    for batches in found.values():
        ordered = [batch for _, batch in sorted(batches)]
        assert ordered == sorted(ordered), "more GPUs never hold fewer requests"


def test_padding_of_mxfp4_is_no_padding_of_bf16() -> None:
    loaded = memory("gpt-oss-120b", "h200", "vllm")
    ideal = memory("gpt-oss-120b", "h200", "ideal")
    assert loaded.weight_bytes / ideal.weight_bytes == pytest.approx(1.06, abs=0.01)
    plain = memory("qwen3-30b-a3b", "h200", "vllm").weight_bytes
    assert plain == pytest.approx(memory("qwen3-30b-a3b", "h200", "ideal").weight_bytes, rel=1e-3)


def test_the_account_of_floor_first() -> None:
    # arXiv:2607.05876, section 4: 41.94 GB on each of TP16, 57.99 GB on each of EP16+DPA.
    paper = CATALOG.model("deepseek-v3-paper")
    stored = Precision(weights=DType.FP8, quantised=paper.quantised)
    card = CATALOG.gpu("h20")
    for layout, gigabytes in ((Layout(tp=16), 41.94), (Layout(dp=16, ep=16), 57.99)):
        engine = CATALOG.engine("ideal")
        apart = replace(engine.memory, shared_expert_sharded=False, dense_ffn_over_dp=False)
        pool = Pool(
            gpu=card,
            fabric=CATALOG.fabric("h20-floor-first"),
            layout=layout,
            engine=replace(engine, memory=replace(apart, vocab_over_dp=False)),
        )
        found = rank_memory(Deployment(model=paper, precision=stored, pools=(pool,)), pool)
        assert found.weight_bytes / 1e9 == pytest.approx(gigabytes, abs=0.01)
        assert found.request_bytes(8192) == pytest.approx(575.67e6, rel=1e-4)


@pytest.mark.parametrize(
    ("gpu", "tp", "legal"),
    [("b200", 8, False), ("b200", 4, True), ("h100", 8, True)],
)
def test_a_kernel_rule_of_one_architecture(gpu: str, tp: int, legal: bool) -> None:
    # https://github.com/vllm-project/vllm/issues/41360: 768 / 8 = 96 on Blackwell in bf16.
    model = CATALOG.model("qwen3-30b-a3b")
    found = check(model, Precision(), Layout(tp=tp), CATALOG.engine("vllm"), CATALOG.gpu(gpu))
    assert (not found) is legal
    if not legal:
        assert "96" in found[0].reason


def test_block_rules_spare_other_formats() -> None:
    model = CATALOG.model("gpt-oss-120b")
    stored = Precision(weights=DType.MXFP4, quantised=("expert",))
    for gpu in ("b200", "h100"):
        assert not check(model, stored, Layout(tp=8), CATALOG.engine("vllm"), CATALOG.gpu(gpu))
