"""TensorRT-LLM: `trtllm-serve` with the PyTorch backend and a file of LLM API options."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dse.export._base import Exporter, Given, Launch, checkpoint, integer, nodes_of, refuse
from dse.hardware import DType
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.schedulers import Static

WIDE = "WIDEEP"
# Only the backend WIDEEP has DeepEP (tensorrt_llm/_torch/modules/fused_moe/fused_moe_wide_ep.py);
# of its two kinds the low-latency one runs under CUDA graphs.
DEEPEP = {"TRTLLM_CAN_USE_DEEP_EP": "1", "TRTLLM_FORCE_ALLTOALL_METHOD": "DeepEPLowLatency"}
_KV = {DType.FP8: "fp8", DType.BF16: "auto", DType.NVFP4: "nvfp4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TRTLLM(Exporter):
    """`--tp_size` counts the ranks of a stage; attention DP is over all of them or none. The
    fraction is of the memory that weights leave. Options without a flag stand in a YAML file (JSON
    is YAML).
    """

    engine: ClassVar[str] = "trtllm"
    cites: ClassVar[str] = "https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve.html"
    limit: ClassVar[str] = (
        "--max_batch_size counts the requests of one rank under attention DP "
        "(max_num_active_requests of tensorrt_llm/_torch/pyexecutor/py_executor.py in "
        "https://github.com/NVIDIA/TensorRT-LLM), of the replica otherwise"
    )
    quantises: ClassVar[bool] = False

    kind: Literal["trtllm"] = "trtllm"

    def launches(self, deployment: Deployment, pool: Pool, context_tokens: int) -> Iterator[Launch]:
        layout, engine = pool.layout, pool.engine
        _check(deployment, pool)
        n_nodes, _ = nodes_of(pool)
        name = "trtllm.yaml" if pool.role == "both" else f"trtllm-{pool.role}.yaml"
        flags: dict[str, str | None] = {
            "--backend": "pytorch",
            "--tp_size": str(layout.stage_ranks),
            "--pp_size": str(layout.pp),
        }
        if layout.ep > 1:
            flags["--ep_size"] = str(layout.ep)
        flags |= {
            "--max_batch_size": str(engine.max_num_seqs),
            "--max_num_tokens": str(engine.max_num_batched_tokens),
            "--max_seq_len": str(context_tokens),
            "--kv_cache_free_gpu_memory_fraction": f"{engine.hbm_fraction:g}",
            "--extra_llm_api_options": name,
        }
        world = layout.n_gpus
        env = DEEPEP if pool.exchange == "deepep" else {}
        over: tuple[str, ...] = ()
        if n_nodes > 1:
            carried = [part for name, value in env.items() for part in ("-x", f"{name}={value}")]
            over = ("mpirun", "-n", str(world), *carried, "trtllm-llmapi-launch")
        path = checkpoint(deployment.model, deployment.precision.weights)
        yield Launch(
            role=pool.role,
            prefix=(*over, "trtllm-serve", path),
            flags=flags,
            env={} if over else env,
            files={name: json.dumps(_options(deployment, pool), indent=2)},
            n_nodes=n_nodes,
            copies=pool.n_replicas,
        )

    def read(self, launch: Launch) -> Given:
        flags = launch.flags
        options: dict[str, Any] = json.loads(launch.files[flags["--extra_llm_api_options"] or ""])
        cache = options["kv_cache_config"]
        world = integer(flags, "--tp_size")
        apart = options["enable_attention_dp"]
        balancer = options.get("moe_config", {}).get("load_balancer", {})
        slots = balancer.get("num_redundant_experts", 0)
        is_wide = options.get("moe_config", {}).get("backend") == WIDE
        return Given(
            layout=Layout(
                tp=1 if apart else world,
                dp=world if apart else 1,
                ep=integer(flags, "--ep_size"),
                pp=integer(flags, "--pp_size"),
                redundant_experts=slots,
            ),
            kv=next(d for d, text in _KV.items() if text == cache["dtype"]),
            max_num_batched_tokens=integer(flags, "--max_num_tokens"),
            max_num_seqs=integer(flags, "--max_batch_size"),
            hbm_fraction=float(flags["--kv_cache_free_gpu_memory_fraction"] or 0.9),
            block_tokens=cache["tokens_per_block"],
            prefix_caching=cache["enable_block_reuse"],
            chunked_prefill=options["enable_chunked_prefill"],
            context_tokens=integer(flags, "--max_seq_len"),
            exchange="deepep" if is_wide else None,
        )

    def router(self, deployment: Deployment) -> tuple[str, ...] | None:
        if not deployment.is_disaggregated:
            return None
        return ("trtllm-serve", "disaggregated", "-c", "$DISAGGREGATED_YAML")

    def warnings(self, deployment: Deployment) -> Iterator[str]:
        yield from super(TRTLLM, self).warnings(deployment)
        if deployment.is_disaggregated:
            counts = {pool.role: pool.n_replicas for pool in deployment.pools}
            yield (
                "DISAGGREGATED_YAML must name one URL a server: context_servers has num_instances "
                f"{counts['prefill']}, generation_servers {counts['decode']}"
            )
        if any(pool.exchange == "deepep" for pool in deployment.pools):
            yield (
                "TensorRT-LLM has no flag for DeepEP: the variables before the command and "
                f"moe_config.backend {WIDE} ask for it, and it starts only where the image holds "
                "DeepEP and activations are bfloat16"
            )


def _check(deployment: Deployment, pool: Pool) -> None:
    layout = pool.layout
    if deployment.precision.kv not in _KV:
        raise refuse(f"TensorRT-LLM has no {deployment.precision.kv.value} KV", "choose fp8")
    if layout.cp > 1:
        raise refuse("the exporter knows no context parallelism of TensorRT-LLM", "choose cp=1")
    if layout.dp > 1 and layout.tp > 1:
        what = f"TensorRT-LLM's attention DP is over all ranks: TP {layout.tp} with DP {layout.dp}"
        raise refuse(what, f"choose tp=1,dp={layout.stage_ranks} or dp=1")
    if layout.redundant_experts:
        what = "redundant experts of TensorRT-LLM need a load balancer file that no point describes"
        raise refuse(what, "choose redundant_experts=0")
    if isinstance(pool.engine.scheduler, Static):
        raise refuse("TensorRT-LLM's PyTorch backend batches in flight", "choose chunked_prefill")


def _options(deployment: Deployment, pool: Pool) -> dict[str, Any]:
    engine, spec = pool.engine, deployment.speculative
    options: dict[str, Any] = {
        "enable_attention_dp": pool.layout.dp > 1,
        "enable_chunked_prefill": engine.scheduler.kind == "chunked_prefill",  # type: ignore[attr-defined]
        "kv_cache_config": {
            "dtype": _KV[deployment.precision.kv],
            "tokens_per_block": engine.block_tokens,
            "enable_block_reuse": engine.prefix_caching,
        },
    }
    if spec is not None and spec.method == "mtp":
        options["speculative_config"] = {
            "decoding_type": "MTP",
            "num_nextn_predict_layers": spec.n_draft,
        }
    elif spec is not None:
        options["speculative_config"] = {
            "decoding_type": "DraftTarget",
            "max_draft_len": spec.n_draft,
            "speculative_model_dir": "$DRAFT_MODEL",
        }
    if pool.exchange == "deepep":
        options["moe_config"] = {"backend": WIDE}
    if pool.role != "both":
        options["cache_transceiver_config"] = {"backend": "DEFAULT"}
    if pool.role == "prefill":
        # A context server does not have the overlap scheduler yet: it must be off there.
        options["disable_overlap_scheduler"] = True
    return options
