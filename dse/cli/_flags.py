"""The flags that name a deployment, a workload and a service level, the same in every command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def _flag(text: str, name: str | None = None) -> Parameter:
    return Parameter(name=name, help=text)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DeploymentFlags:
    """What is deployed on what."""

    deployment: Annotated[
        Path | None, _flag("A YAML file whose keys are these flags; flags given beside it win.")
    ] = None
    model: Annotated[str | None, _flag("A catalog model, or a Hugging Face config.json.")] = None
    gpu: Annotated[str | None, _flag("A catalog GPU, or a YAML file of one.")] = None
    gpus: Annotated[int | None, _flag("GPUs in all; missing: those of one replica.")] = None
    layout: Annotated[
        str | None, _flag("Degrees of one replica: tp=8,dp=1,ep=1,pp=1,cp=1; missing ones are 1.")
    ] = None
    weights: Annotated[
        str | None, _flag("Format of the weights: bf16, fp8, fp8_block, nvfp4, mxfp4, int8, int4.")
    ] = None
    kv: Annotated[str | None, _flag("Format of the KV cache: bf16 or fp8.")] = None
    engine: Annotated[
        str | None, _flag("Engine profile: ideal, vllm (default), sglang or trtllm, [@version].")
    ] = None
    fabric: Annotated[str | None, _flag("A catalog fabric; missing: the one of the GPU.")] = None
    hbm_fraction: Annotated[str | None, _flag("Share of HBM the engine may use, as 0.9.")] = None
    overhead: Annotated[
        str | None, _flag("What the engine takes beside weights and KV, as 5GB: all of it.")
    ] = None
    set_: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            consume_multiple=False,
            negative="",
            help="Any fact: gpu.hbm=96GB, fabric.scale_out.latency=33us (a stated latency is also "
            "its floor), model.max_context=128Ki, engine.memory.hybrid_kv=off.",
        ),
    ] = ()
    kv_pool: Annotated[
        str | None, _flag("KV pool per GPU, as 46.80GiB: skips the pool arithmetic.")
    ] = None
    engine_args: Annotated[
        str | None, _flag("Engine settings: max_num_seqs=256,block_tokens=64,hybrid_kv=on.")
    ] = None
    prefill: Annotated[
        str | None, _flag("A pool that only prefills: 'gpus=4 layout=tp=4 gpu=…'.")
    ] = None
    decode: Annotated[
        str | None, _flag("A pool that only decodes: 'gpus=8 layout=tp=1,dp=8,ep=8'.")
    ] = None
    speculative: Annotated[
        str | None, _flag("method:tokens:acceptance, as mtp:3:0.8 or draft:4:0.6.")
    ] = None
    routing: Annotated[str | None, _flag("Expert popularity: uniform (default) or zipf:0.6.")] = (
        None
    )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WorkloadFlags:
    """What is asked of it."""

    isl: Annotated[str, _flag("Input tokens: 4000, or uniform:819:1024.")] = "1024"
    osl: Annotated[str, _flag("Output tokens: 1000, or uniform:819:1024.")] = "1024"
    concurrency: Annotated[int | None, _flag("Requests in flight (closed loop).")] = None
    rate: Annotated[str | None, _flag("Requests per second (Poisson), as 8 or '8 req/s'.")] = None
    trace: Annotated[Path | None, _flag("A recorded trace: arrivals and lengths.")] = None
    requests: Annotated[int | None, _flag("Requests of the run; missing: 10 x concurrency.")] = None
    prefix_cached: Annotated[
        str, _flag("Prompt tokens that all requests share, or a share of the ISL as 30%.")
    ] = "0"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SLOFlags:
    """What is promised."""

    slo_ttft: Annotated[str | None, _flag("Time to the first token, as 2s.")] = None
    slo_tpot: Annotated[str | None, _flag("Time per output token, as 40ms.")] = None
    percentile: Annotated[float, _flag("Share of requests that meet every bound.")] = 0.99
