"""What measured rows call things, and what the catalog calls them."""

import pytest

from dse.catalog import Catalog
from dse.evidence.names import dtype_named, engine_named, gpu_named, model_named
from dse.hardware import DType

CATALOG = Catalog.load()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen3-32B", "Qwen3-32B"),
        ("LLaMA v3.1 8B", "Llama-3.1-8B"),
        ("Llama-3.3-70B-Instruct-FP8", "Llama-3.3-70B"),
        ("Llama 3.1 405B (amd/Llama-3.1-405B-Instruct-FP8-KV)", "Llama-3.1-405B"),
        ("LLaMA 7B", "Llama-2-7B"),
        ("DeepSeek-R1-0528", "DeepSeek-R1"),
    ],
)
def test_models(text: str, name: str) -> None:
    found = model_named(CATALOG, text)
    assert found is not None
    assert found.name.split("-FP8")[0] == name


def test_a_model_that_nobody_knows_is_none() -> None:
    assert model_named(CATALOG, "vllm-ascend/Unheard-9B-W8A8") is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h100_sxm", "H100-SXM"),
        ("H100-64GB (MareNostrum 5; nvidia-smi total 65247 MiB)", "H100-64GB"),
        ("NVIDIA H100-PCIe-80GB", "H100-PCIe"),
        ("AMD Instinct MI300X 192GB HBM3", "MI300X"),
        ("RTX PRO 6000 Blackwell SE", "RTX-PRO-6000"),
    ],
)
def test_gpus(text: str, name: str) -> None:
    found = gpu_named(CATALOG, text)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("name", "version", "label"),
    [
        ("tensorrt-llm", "v0.9.0", "trtllm@0.8"),
        ("tensorrt-llm", "v0.17.0", "trtllm@0.10"),
        ("trt", "nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc6.post2", "trtllm@1.1"),
        ("vllm", "0.12.0", "vllm@0.11"),
        ("vllm", "0.15.1", "vllm@0.14"),
        ("sglang", "lmsysorg/sglang:v0.5.9-cu130", "sglang@0.5"),
    ],
)
def test_the_newest_profile_that_is_not_newer(name: str, version: str, label: str) -> None:
    found = engine_named(CATALOG, name, version, CATALOG.gpu("h200-sxm"))
    assert found is not None
    assert found.label == label


def test_vllm_takes_smaller_defaults_on_an_a100() -> None:
    """vllm/engine/arg_utils.py: 2,048 tokens and 256 requests."""
    found = engine_named(CATALOG, "vllm", "0.11.0", CATALOG.gpu("a100-sxm"))
    assert found is not None
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (2048, 256)


def test_an_engine_without_a_profile_is_none() -> None:
    assert engine_named(CATALOG, "atom", "1.0", CATALOG.gpu("mi355x")) is None


def test_formats() -> None:
    assert dtype_named("fp8 (native checkpoint)") is DType.FP8
    assert dtype_named("fp16/bf16 (dtype auto)") is DType.BF16
    assert dtype_named(None) is None
