"""Bounds on every number of every shipped file: a slip of a unit, a sparse peak printed as dense, a
bandwidth of both directions or a missing source does not get in.
"""

import re

import pytest

from dse.catalog import Catalog
from dse.catalog.catalog import fold
from dse.hardware import GPU
from dse.hardware.fabric import Link
from dse.model.shard import WHOLE

CATALOG = Catalog.load()
GB, TB, T = 1e9, 1e12, 1e12
# Dense peaks of tensor cores over those of 16 bits, by format; sparsity would double them.
RATIOS = {"fp8": (1.0, 4.1), "int8": (0.05, 4.1), "fp4": (2.0, 8.1), "fp32": (0.01, 1.0)}
# FLOP per clock and SM in 16 bits, dense: a sparse figure is twice the largest.
FLOP_PER_CLOCK = {
    "ampere": 2048,
    "ada": 1024,
    "hopper": 4096,
    "blackwell": 8192,
    "blackwell-ultra": 8192,
    "cdna2": 1024,
    "cdna3": 2048,
    "cdna4": 4096,
}
MOST_LINK = {
    "nvlink": 900 * GB,
    "xgmi": 576 * GB,
    "pcie": 64 * GB,
    "roce": 600 * GB,
    "ici": 400 * GB,
}
DATED = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def is_sourced(source: str) -> bool:
    return "https://" in source and bool(DATED.search(source))


@pytest.mark.parametrize("kind", ["gpu", "fabric", "model", "engine", "price"])
def test_every_file_has_a_dated_source_with_an_address(kind: str) -> None:
    for name in CATALOG.names(kind):
        assert is_sourced(CATALOG.record(kind, name).source), f"{kind} {name}"


@pytest.mark.parametrize("kind", ["gpu", "fabric", "model", "price"])
def test_a_file_is_called_like_its_record(kind: str) -> None:
    for name in CATALOG.names(kind):
        assert CATALOG.record(kind, name).name.lower() == name


def test_engine_files_are_called_name_at_version() -> None:
    for name in CATALOG.names("engine"):
        assert CATALOG.record("engine", name).label == name


GPUS = [CATALOG.gpu(name) for name in CATALOG.names("gpu")]


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_gpu_memory(gpu: GPU) -> None:
    # The driver shows at most what is there: decimal GB on NVIDIA, GiB on AMD and Google.
    most = 2**30 / 1e9 if gpu.vendor in {"amd", "google", "intel"} else 1.072
    assert 0.93 <= gpu.hbm_bytes / gpu.hbm_datasheet_bytes <= most
    assert 15 * GB <= gpu.hbm_bytes <= 320 * GB
    assert 0.25 * TB <= gpu.hbm_bytes_per_s <= 8.0 * TB
    assert 1e6 <= gpu.l2_bytes <= 300e6


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_gpu_peaks_are_dense(gpu: GPU) -> None:
    bf16 = gpu.peak_flop_per_s["bf16"]
    assert 100 * T <= bf16 <= 2600 * T
    for format_, peak in gpu.peak_flop_per_s.items():
        low, high = RATIOS.get(format_, (1.0, 1.0))
        assert low <= peak / bf16 <= high, format_
    if gpu.architecture in FLOP_PER_CLOCK and "consumer" not in gpu.tags:
        per_clock = bf16 / (gpu.sm_count * gpu.boost_hz)
        assert per_clock <= 1.05 * FLOP_PER_CLOCK[gpu.architecture], "a sparse peak?"
    ridge = bf16 / gpu.hbm_bytes_per_s
    assert 30 <= ridge <= 700


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_gpu_clocks_and_power(gpu: GPU) -> None:
    assert 1 <= gpu.sm_count <= 320
    assert 1.0e9 <= gpu.boost_hz <= 3.0e9
    assert 60 <= gpu.tdp_watts <= 1500
    assert 0.05 <= gpu.idle_watts / gpu.tdp_watts <= 0.25
    per_clock = gpu.sfu_op_per_s / (gpu.sm_count * gpu.boost_hz)
    assert per_clock == pytest.approx(round(per_clock), rel=0.001), "a whole number per clock"
    assert round(per_clock) in {16, 32, 64, 1024, 2048}


def test_exponentials_doubled_on_blackwell_ultra_only() -> None:
    for gpu in GPUS:
        if gpu.vendor == "nvidia":
            per_clock = round(gpu.sfu_op_per_s / (gpu.sm_count * gpu.boost_hz))
            assert per_clock == (32 if gpu.architecture == "blackwell-ultra" else 16), gpu.name


def check_link(link: Link) -> None:
    assert 0 < link.latency_floor_s <= link.latency_s <= 100e-6
    assert 0.1 <= link.peer_fraction <= 1
    assert link.bytes_per_s >= 5 * GB
    assert link.exchange_latency_s is None or link.exchange_latency_s >= link.latency_floor_s


@pytest.mark.parametrize("name", CATALOG.names("fabric"))
def test_links_are_per_gpu_and_one_way(name: str) -> None:
    fabric = CATALOG.fabric(name)
    check_link(fabric.scale_up)
    check_link(fabric.scale_out)
    assert fabric.scale_up.bytes_per_s <= MOST_LINK[fabric.kind], "both directions?"
    assert fabric.scale_out.bytes_per_s <= 100 * GB
    assert 2 <= fabric.scale_up.n_gpus <= 256
    assert fabric.scale_out.n_gpus >= fabric.scale_up.n_gpus


@pytest.mark.parametrize("name", CATALOG.names("model"))
def test_models(name: str) -> None:
    model = CATALOG.model(name)
    total, active = model.parameters(), model.active_parameters()
    assert 1e8 < active <= total < 3e12
    assert model.is_moe or active == total
    if model.published_parameters:
        assert total == pytest.approx(model.published_parameters, rel=0.005)
    if model.checkpoint_bytes:
        assert 0.5 <= model.checkpoint_bytes / total <= 2.2
    assert 512 <= model.d_model <= 16384
    assert 30_000 <= model.vocab_size <= 270_000
    assert 2048 <= model.max_context_tokens <= 10_485_760
    assert not model.tags or {"moe", "dense"} & set(model.tags)
    for group in model.layers:
        assert all(t.total_elements >= 0 for t in group.tensors(model.d_model, WHOLE))


@pytest.mark.parametrize("name", CATALOG.names("engine"))
def test_engines(name: str) -> None:
    engine = CATALOG.record("engine", name)
    memory, host = engine.memory, engine.host
    assert 0.5 <= engine.hbm_fraction <= 1
    assert 256 <= engine.max_num_batched_tokens <= 65536
    assert 16 <= engine.max_num_seqs <= 8192
    assert engine.block_tokens in {1, 16, 32, 64, 128}
    for taken in (memory.context_bytes, memory.graph_bytes, memory.multi_gpu_bytes):
        assert 0 <= taken <= 8 * GB
    assert 0 <= memory.activation_bytes_per_token_width <= 200
    assert 0 <= host.step_s <= 20e-3
    assert 0 <= host.request_s <= 1e-3
    assert 0 <= host.arrival_s <= 0.2


def test_prices_are_within_reason() -> None:
    for quote in CATALOG.prices():
        assert 0.3 <= quote.usd_per_gpu_hour <= 12, quote
        assert DATED.fullmatch(quote.date), quote
        assert quote.basis in {"on_demand", "reserved", "lease", "tco"}


GPU_NAMES = """
    a100 h100 h200 h20 h800 b200 b300 gb200 gb300 mi300x mi325x mi355x l40s l4 4090 5090
"""
MODEL_NAMES = """
    llama-3.1-8b llama-3.3-70b llama-3.1-405b qwen2.5-7b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b
    mixtral-8x7b gpt-oss-120b deepseek-v3 deepseek-r1 deepseek-v3.2 kimi-k2 glm-5 phi-4 gemma-3-27b
    mistral-small-24b opt-1.3b llama-2-70b llama-4-scout minimax-m2 qwen3-next nemotron-h-56b
"""


@pytest.mark.parametrize("name", GPU_NAMES.split())
def test_gpus_that_people_ask_for(name: str) -> None:
    assert CATALOG.gpu(name).hbm_bytes > 0


@pytest.mark.parametrize("name", MODEL_NAMES.split())
def test_models_that_people_ask_for(name: str) -> None:
    assert CATALOG.model(name).n_layers > 0


def test_driver_visible_memory_in_gib() -> None:
    # Case C of the public collection: what programs see, not what the data sheet prints.
    for name, gib in (
        ("h100-sxm", 79.18),
        ("h200-sxm", 140.4),
        ("b200-sxm", 178.36),
        ("b300-sxm", 268.6),
        ("gb200", 185.0),
        ("gb300", 277.5),
        ("mi300x", 191.98),
        ("rtx-4090", 23.52),
        ("rtx-5090", 31.4),
        ("rtx-pro-6000", 95.6),
        ("l40s", 45.0),
    ):
        assert CATALOG.gpu(name).hbm_bytes / 2**30 == pytest.approx(gib, abs=0.06)
    assert CATALOG.gpu("rtx-4090").hbm_bytes == 25_250_627_584
    assert CATALOG.gpu("h20-96gb").hbm_bytes == 97_871 * 2**20


@pytest.mark.parametrize("kind", ["gpu", "model"])
def test_a_tag_is_no_other_record_s_name(kind: str) -> None:
    stems = {fold(name): name for name in CATALOG.names(kind)}
    for name in CATALOG.names(kind):
        for tag in CATALOG.record(kind, name).tags:
            assert stems.get(fold(tag), name) == name, f"{name} is tagged {tag}"


@pytest.mark.parametrize("name", CATALOG.names("fabric"))
def test_every_fabric_is_some_gpu_s_or_says_whose(name: str) -> None:
    used = {CATALOG.gpu(gpu).fabric for gpu in CATALOG.names("gpu")}
    assert name in used or name == "h20-floor-first"
