"""SGLang: `python -m sglang.launch_server`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.export._base import (
    Exporter,
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
from dse.model import Model
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.schedulers import Static

HEAD_PORT = "5000"
BOOTSTRAP_PORT = "8998"
_KV = {DType.FP8: "fp8_e4m3", DType.BF16: "auto"}
_OWN = {
    "both": "GPUs and a --port of its own",
    "decode": "GPUs and a --port of its own",
    "prefill": (
        "GPUs and a --port of its own; two on one host also need a bootstrap port each, which the "
        "router takes behind the URL"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SGLang(Exporter):
    """`--tp-size` counts the ranks of a stage, attention DP among them. Under DP attention the
    server divides `--chunked-prefill-size` and `--max-running-requests` by the DP size, so both are
    given for all ranks together. DeepEP sets `--ep-size` to `--tp-size` whatever is asked, so it is
    named only where it is the layout's exchange; without it SGLang gathers tokens.
    """

    engine: ClassVar[str] = "sglang"
    cites: ClassVar[str] = "https://docs.sglang.ai/advanced_features/server_arguments.html"
    limit: ClassVar[str] = (
        "--max-running-requests counts those of a whole replica: each attention DP rank takes "
        "max_running_requests // dp_size "
        "(https://github.com/sgl-project/sglang/tree/main/python/sglang/srt/managers)"
    )

    kind: Literal["sglang"] = "sglang"

    def launches(self, deployment: Deployment, pool: Pool, context_tokens: int) -> Iterator[Launch]:
        flags = dict(self._flags(deployment, pool, context_tokens))
        n_nodes, _ = nodes_of(pool)
        for node in range(n_nodes):
            head = f"{head_address(pool)}:{HEAD_PORT}"
            more = {"--nnodes": str(n_nodes), "--node-rank": str(node), "--dist-init-addr": head}
            yield Launch(
                role=pool.role,
                prefix=("python", "-m", "sglang.launch_server"),
                flags={**flags, **(more if n_nodes > 1 else {})},
                node=node,
                n_nodes=n_nodes,
                copies=pool.n_replicas,
                own=_OWN[pool.role],
            )

    def read(self, launch: Launch) -> Given:
        flags = launch.flags
        world, dp = integer(flags, "--tp-size"), integer(flags, "--dp-size")
        layout = Layout(
            tp=world // dp,
            dp=dp,
            ep=integer(flags, "--ep-size"),
            pp=integer(flags, "--pp-size"),
            redundant_experts=integer(flags, "--ep-num-redundant-experts", 0),
        )
        exchange = "deepep" if flags.get("--moe-a2a-backend") == "deepep" else "all_gather"
        starts_deepep = dp > 1 and layout.ep == world > 1
        return Given(
            layout=layout,
            kv=next(d for d, text in _KV.items() if text == flags["--kv-cache-dtype"]),
            max_num_batched_tokens=integer(flags, "--chunked-prefill-size") // dp,
            max_num_seqs=integer(flags, "--max-running-requests") // dp,
            hbm_fraction=float(flags["--mem-fraction-static"] or 0.9),
            block_tokens=integer(flags, "--page-size"),
            prefix_caching="--disable-radix-cache" not in flags,
            chunked_prefill="--enable-mixed-chunk" in flags,
            context_tokens=integer(flags, "--context-length"),
            exchange=exchange if starts_deepep else None,
        )

    def router(self, deployment: Deployment) -> tuple[str, ...] | None:
        if not deployment.is_disaggregated:
            return None
        found = ["python", "-m", "sglang_router.launch_router", "--pd-disaggregation"]
        for url in urls(deployment, "prefill"):
            found += ["--prefill", url, BOOTSTRAP_PORT]
        for url in urls(deployment, "decode"):
            found += ["--decode", url]
        return tuple(found)

    def _flags(
        self, deployment: Deployment, pool: Pool, context_tokens: int
    ) -> Iterator[tuple[str, str | None]]:
        engine, precision, layout = pool.engine, deployment.precision, pool.layout
        if precision.kv not in _KV:
            raise refuse(f"SGLang has no {precision.kv.value} KV cache", "choose fp8 or bf16")
        if layout.cp > 1:
            raise refuse("SGLang has no decode context parallelism", "choose cp=1")
        if isinstance(engine.scheduler, Static):
            raise refuse("SGLang has no static batching", "choose scheduler: chunked_prefill")
        online = is_quantised_online(deployment)
        stored = deployment.model.checkpoint if online else precision.weights
        yield "--model-path", checkpoint(deployment.model, stored)
        yield "--served-model-name", deployment.model.name.lower()
        if online:
            yield "--quantization", "fp8"
        yield from _layout_flags(pool)
        yield from _dp_flags(deployment.model, pool)
        yield "--kv-cache-dtype", _KV[precision.kv]
        yield "--context-length", str(context_tokens)
        yield "--chunked-prefill-size", str(engine.max_num_batched_tokens * layout.dp)
        yield "--max-running-requests", str(engine.max_num_seqs * layout.dp)
        yield "--mem-fraction-static", f"{engine.hbm_fraction:g}"
        yield "--page-size", str(engine.block_tokens)
        if engine.scheduler.kind == "chunked_prefill":  # type: ignore[attr-defined]
            yield "--enable-mixed-chunk", None
        if not engine.prefix_caching:
            yield "--disable-radix-cache", None
        yield from _speculative_flags(deployment)
        if pool.role != "both":
            yield "--disaggregation-mode", pool.role
            yield "--disaggregation-transfer-backend", "nixl"
        if pool.role == "prefill":
            yield "--disaggregation-bootstrap-port", BOOTSTRAP_PORT


def _layout_flags(pool: Pool) -> Iterator[tuple[str, str | None]]:
    layout = pool.layout
    yield "--tp-size", str(layout.stage_ranks)
    if layout.pp > 1:
        yield "--pp-size", str(layout.pp)
    if layout.dp > 1:
        yield "--dp-size", str(layout.dp)
        yield "--enable-dp-attention", None
    if layout.ep > 1:
        yield "--ep-size", str(layout.ep)
        if pool.exchange == "deepep":
            yield "--moe-a2a-backend", "deepep"
    if layout.redundant_experts:
        yield "--enable-eplb", None
        yield "--ep-num-redundant-experts", str(layout.redundant_experts)


def _dp_flags(model: Model, pool: Pool) -> Iterator[tuple[str, str | None]]:
    """Attention DP as it is priced: head within the DP rank, dense layers of a MoE model whole."""
    if pool.layout.dp == 1:
        return
    if not pool.engine.memory.vocab_over_dp:
        yield "--enable-dp-lm-head", None
    has_dense = model.is_moe and any("dense" in group.ffn.widths() for group in model.layers)
    if has_dense and pool.shard().dense_tp == 1:
        yield "--moe-dense-tp-size", "1"


def _speculative_flags(deployment: Deployment) -> Iterator[tuple[str, str | None]]:
    spec = deployment.speculative
    if spec is None:
        return
    yield "--speculative-algorithm", "EAGLE" if spec.method == "mtp" else "STANDALONE"
    if spec.method == "draft":
        yield "--speculative-draft-model-path", "$DRAFT_MODEL"
    yield "--speculative-num-steps", str(spec.n_draft)
    yield "--speculative-eagle-topk", "1"
    yield "--speculative-num-draft-tokens", str(spec.n_draft + 1)
