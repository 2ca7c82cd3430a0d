"""Measured serving rows as cases: what is used, what is refused, and what a load becomes."""

from dataclasses import replace
from typing import Any

import pytest

from dse.catalog import Catalog
from dse.evidence.measurement import Measurement
from dse.evidence.serving_rows import serving_cases
from dse.hardware import DType
from dse.serving.arrivals import AllAtOnce, ClosedLoop
from dse.serving.lengths import Uniform
from dse.serving.schedulers import Static

CATALOG = Catalog.load()
ROW = Measurement(
    line=2, model="DeepSeek-R1-0528", gpu="B200", isl_tokens=1024, osl_tokens=1024, concurrency=16,
    n_gpus=8, tp=8, ep="8", dp_attn=True, framework="trt", framework_version="1.2.0rc6.post2",
    precision_weights="fp4", load_mode="online closed-loop (max-concurrency, request-rate inf)",
    tpot_s=0.01, tpot_stat="median", grade="A", source="InferenceX (SemiAnalysis)",
)  # fmt: skip


def case(**changes: Any) -> Any:
    return serving_cases([replace(ROW, **changes)], CATALOG)[0]


def test_attention_dp_takes_the_place_of_tensor_parallelism() -> None:
    found = case()
    layout = found.deployment.pools[0].layout
    assert (layout.tp, layout.dp, layout.ep, layout.moe_tp) == (1, 8, 8, 1)
    assert found.deployment.precision.weights is DType.NVFP4
    assert found.deployment.precision.kv is DType.FP8


def test_inferencex_draws_lengths_from_four_fifths_to_all_of_the_nominal() -> None:
    workload = case().workload
    assert workload.isl == Uniform(low_tokens=819, high_tokens=1024)
    assert workload.arrivals == ClosedLoop(concurrency=16)
    assert workload.n_requests == 160


def test_polls_of_sglang_on_blackwell() -> None:
    """--scheduler-recv-interval 10, and 30 from 16 requests in flight on."""
    few, many = (
        case(framework="sglang", framework_version="v0.5.9", dp_attn=False, concurrency=n)
        for n in (8, 16)
    )
    assert (few.poll_steps, many.poll_steps) == (10, 30)
    assert not few.deployment.pools[0].engine.prefix_caching


def test_a_static_batch_has_no_scheduler_and_no_server() -> None:
    found = case(
        load_mode="static batch (vLLM benchmark_latency)", framework="vllm", source="AMD",
        framework_version="0.9.1", model="Llama 3.1 70B", gpu="MI300X", precision_weights="fp8",
        dp_attn=None, ep=None, notes="published as 'MI300X Latency (ms)'=51739.70", e2e_s=51739.7,
    )  # fmt: skip
    engine = found.deployment.pools[0].engine
    assert engine.scheduler == Static()
    assert engine.host.arrival_s == 0.0
    assert (found.workload.n_requests, found.workload.arrivals) == (16, AllAtOnce())
    assert found.measured["e2e_s"] == pytest.approx(51.7397)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"disagg": True}, "disaggregated"),
        ({"spec_decode": "mtp"}, "speculative"),
        ({"model": "Unheard-9B"}, "no model"),
        ({"framework": "atom"}, "no profile"),
        ({"n_gpus": 12}, "no replicas"),
        ({"n_gpus": None, "tp": None}, "does not say n_gpus, tp"),
        ({"load_mode": "online Poisson (Server)"}, "load: online Poisson"),
        ({"gpu": "A100-SXM4-80GB", "precision_weights": "fp8"}, "illegal"),
        ({"load_mode": "online Poisson (ShareGPT)"}, "lengths are those of a trace"),
    ],
)
def test_what_cannot_be_predicted_says_why(changes: dict[str, Any], reason: str) -> None:
    found = case(**changes)
    assert found.deployment is None
    assert reason in found.reason


def test_a_throughput_run_of_rocm_takes_all_prompts_at_once_and_counts_answers() -> None:
    found = case(
        load_mode="offline max throughput (benchmark_throughput)", framework="vllm",
        source="AMD ROCm/vllm dev-docker README", framework_version="vLLM 0.9.1 ROCm 6.4.1",
        model="Llama 3.1 70B", gpu="MI300X", precision_weights="fp8", dp_attn=None, ep=None,
        concurrency=1500, notes="num_prompts=1500; as printed", tpot_s=None, total_tok_per_s=8000.0,
    )  # fmt: skip
    engine = found.deployment.pools[0].engine
    assert (engine.max_num_seqs, engine.max_num_batched_tokens) == (1500, 131_072)
    assert found.workload.n_requests == 1500
    assert found.measured == {"output_tok_per_s": 8000.0}
