"""vLLM: `vllm serve`, its engine arguments and its ways over nodes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dse.export._base import (
    Exporter,
    Flags,
    Given,
    Launch,
    checkpoint,
    head_address,
    integer,
    is_quantised_online,
    nodes_of,
    refuse,
    urls,
)
from dse.hardware import DType
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.schedulers import Static

RPC_PORT = "13345"
_KV = {DType.FP8: "fp8", DType.BF16: "auto"}
_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
HYBRID_OFF = "--disable-hybrid-kv-cache-manager"
BEFORE_HYBRID = ("0.6",)
DEEPEP, ALL_GATHER = "deepep_low_latency", "allgather_reducescatter"


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLM(Exporter):
    """`--max-num-seqs` and `--max-num-batched-tokens` are per data-parallel rank, as in a profile;
    `--enable-expert-parallel` cuts experts over TP × DP.
    """

    engine: ClassVar[str] = "vllm"
    cites: ClassVar[str] = "https://docs.vllm.ai/en/stable/configuration/engine_args/"
    limit: ClassVar[str] = (
        "--max-num-seqs counts the requests of one data-parallel rank, an engine core of its own "
        "(https://docs.vllm.ai/en/stable/serving/data_parallel_deployment/)"
    )

    kind: Literal["vllm"] = "vllm"

    def launches(self, deployment: Deployment, pool: Pool, context_tokens: int) -> Iterator[Launch]:
        flags = dict(self._flags(deployment, pool, context_tokens))
        n_nodes, per_node = nodes_of(pool)
        path = checkpoint(deployment.model, _stored(deployment))
        prefix = ("vllm", "serve", path)
        own = "GPUs and a --port of its own"
        if pool.role != "both":
            own = "GPUs, a --port and a VLLM_NIXL_SIDE_CHANNEL_PORT of its own"
        for node, more in enumerate(_spread(pool, n_nodes, per_node)):
            yield Launch(
                role=pool.role,
                prefix=prefix,
                flags={**flags, **more},
                node=node,
                n_nodes=n_nodes,
                copies=pool.n_replicas,
                own=own,
            )

    def read(self, launch: Launch) -> Given:
        flags = launch.flags
        tp, dp = (integer(flags, f"--{kind}-parallel-size") for kind in ("tensor", "data"))
        balance: dict[str, Any] = json.loads(flags.get("--eplb-config") or "{}")
        layout = Layout(
            tp=tp,
            dp=dp,
            ep=tp * dp if "--enable-expert-parallel" in flags else 1,
            pp=integer(flags, "--pipeline-parallel-size"),
            cp=integer(flags, "--decode-context-parallel-size"),
            redundant_experts=balance.get("num_redundant_experts", 0),
        )
        backend = flags.get("--all2all-backend")
        return Given(
            layout=layout,
            kv=next(d for d, text in _KV.items() if text == flags["--kv-cache-dtype"]),
            max_num_batched_tokens=integer(flags, "--max-num-batched-tokens"),
            max_num_seqs=integer(flags, "--max-num-seqs"),
            hbm_fraction=float(flags["--gpu-memory-utilization"] or 0.9),
            block_tokens=integer(flags, "--block-size"),
            prefix_caching="--enable-prefix-caching" in flags,
            chunked_prefill="--enable-chunked-prefill" in flags,
            context_tokens=integer(flags, "--max-model-len"),
            exchange={DEEPEP: "deepep", ALL_GATHER: "all_gather"}.get(backend or ""),
            hybrid_kv=False if HYBRID_OFF in flags else None,
        )

    def router(self, deployment: Deployment) -> tuple[str, ...] | None:
        if not deployment.is_disaggregated:
            return None
        found = ["vllm-router", "--vllm-pd-disaggregation"]
        for role in ("prefill", "decode"):
            for url in urls(deployment, role):
                found += [f"--{role}", url]
        return tuple(found)

    def _flags(
        self, deployment: Deployment, pool: Pool, context_tokens: int
    ) -> Iterator[tuple[str, str | None]]:
        engine, precision = pool.engine, deployment.precision
        if precision.kv not in _KV:
            raise refuse(f"vLLM has no {precision.kv.value} KV cache", "choose fp8 or bf16")
        if isinstance(engine.scheduler, Static):
            raise refuse("vLLM has no static batching", "choose scheduler: chunked_prefill")
        yield "--served-model-name", deployment.model.name.lower()
        if is_quantised_online(deployment):
            yield "--quantization", "fp8"
        yield from _layout_flags(pool)
        yield "--kv-cache-dtype", _KV[precision.kv]
        yield "--max-model-len", str(context_tokens)
        yield "--max-num-batched-tokens", str(engine.max_num_batched_tokens)
        yield "--max-num-seqs", str(engine.max_num_seqs)
        yield "--gpu-memory-utilization", f"{engine.hbm_fraction:g}"
        yield "--block-size", str(engine.block_tokens)
        chunked = engine.scheduler.kind == "chunked_prefill"  # type: ignore[attr-defined]
        yield ("--enable-chunked-prefill" if chunked else "--no-enable-chunked-prefill"), None
        caching = engine.prefix_caching
        yield ("--enable-prefix-caching" if caching else "--no-enable-prefix-caching"), None
        if not engine.memory.hybrid_kv and engine.version not in BEFORE_HYBRID:
            yield HYBRID_OFF, None
        if deployment.speculative is not None:
            spec = deployment.speculative
            given: dict[str, Any] = {"method": spec.method}
            if spec.method == "draft":
                given = {"method": "draft_model", "model": "$DRAFT_MODEL"}
            given["num_speculative_tokens"] = spec.n_draft
            yield "--speculative-config", json.dumps(given)
        if pool.role != "both":
            transfer = {"kv_connector": "NixlConnector", "kv_role": _ROLES[pool.role]}
            yield "--kv-transfer-config", json.dumps(transfer)


def _layout_flags(pool: Pool) -> Iterator[tuple[str, str | None]]:
    layout = pool.layout
    yield "--tensor-parallel-size", str(layout.tp)
    for flag, degree in (
        ("--pipeline-parallel-size", layout.pp),
        ("--data-parallel-size", layout.dp),
        ("--decode-context-parallel-size", layout.cp),
    ):
        if degree > 1:
            yield flag, str(degree)
    if layout.ep > 1:
        yield "--enable-expert-parallel", None
        if layout.dp > 1:
            yield "--all2all-backend", DEEPEP if pool.exchange == "deepep" else ALL_GATHER
    if layout.redundant_experts:
        yield "--enable-eplb", None
        yield "--eplb-config", json.dumps({"num_redundant_experts": layout.redundant_experts})


def _spread(pool: Pool, n_nodes: int, per_node: int) -> Iterator[Flags]:
    """What each node adds: whole DP ranks a node, or one rank over several."""
    layout, head = pool.layout, head_address(pool)
    rank = layout.tp * layout.pp
    if n_nodes == 1:
        yield {}
    elif rank > per_node and layout.dp > 1:
        yield {"--distributed-executor-backend": "ray", "--data-parallel-backend": "ray"}
    elif layout.dp > 1:
        local = max(1, per_node // rank)
        for start in range(0, layout.dp, local):
            first = {"--data-parallel-start-rank": str(start), "--headless": None}
            yield {
                "--data-parallel-size-local": str(min(local, layout.dp - start)),
                "--data-parallel-address": head,
                "--data-parallel-rpc-port": RPC_PORT,
                **(first if start else {}),
            }
    else:
        for node in range(n_nodes):
            yield {
                "--nnodes": str(n_nodes),
                "--node-rank": str(node),
                "--master-addr": head,
                **({"--headless": None} if node else {}),
            }


def _stored(deployment: Deployment) -> DType:
    """The format of the checkpoint that is loaded."""
    if is_quantised_online(deployment):
        return deployment.model.checkpoint
    return deployment.precision.weights
