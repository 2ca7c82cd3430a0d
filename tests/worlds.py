"""Small worlds with round numbers, and the published shapes of a few models, for tests by hand."""

from typing import Any

from dse.hardware import GPU, DType, Fabric, Link
from dse.model.attention.gqa import GQA
from dse.model.attention.linear import Linear
from dse.model.attention.mla import MLA
from dse.model.attention.sliding import Sliding
from dse.model.attention.sparse import DSA
from dse.model.ffn.dense import Dense
from dse.model.ffn.moe import MoE
from dse.model.model import LayerGroup, Model, Speculative
from dse.model.precision import Precision
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import Engine, EngineHost, EngineMemory, EngineRules
from dse.serving.layout import Layout

SOURCE = "worlds: made for tests"


def gpu(**changes: Any) -> GPU:
    """100 GB at 1 TB/s, 100 TFLOP/s in 16 bits and twice that in FP8."""
    facts: dict[str, Any] = {
        "name": "unit",
        "vendor": "none",
        "architecture": "unit",
        "hbm_bytes": 100e9,
        "hbm_datasheet_bytes": 100e9,
        "hbm_bytes_per_s": 1e12,
        "peak_flop_per_s": {"bf16": 1e14, "fp8": 2e14, "fp32": 1e13},
        "sfu_op_per_s": 1e12,
        "l2_bytes": 50e6,
        "sm_count": 100,
        "boost_hz": 1e9,
        "tdp_watts": 500.0,
        "idle_watts": 100.0,
        "fabric": "unit",
        "source": SOURCE,
    }
    return GPU(**facts | changes)


def fabric(*, gpus: int = 8, **changes: Any) -> Fabric:
    """Domains of `gpus` at 100 GB/s and 1 µs, joined at 10 GB/s and 10 µs."""
    up = Link(n_gpus=gpus, bytes_per_s=1e11, latency_s=2e-6, latency_floor_s=1e-6)
    out = Link(n_gpus=1024, bytes_per_s=1e10, latency_s=2e-5, latency_floor_s=1e-5)
    facts: dict[str, Any] = {
        "name": "unit",
        "kind": "switch",
        "scale_up": up,
        "scale_out": out,
        "source": SOURCE,
    }
    return Fabric(**facts | changes)


def engine(
    *, memory: dict[str, Any] | None = None, rules: dict[str, Any] | None = None, **changes: Any
) -> Engine:
    """An engine without overheads: all of HBM, blocks of 16 tokens."""
    plain = {
        "pool_rule": "of_total",
        "context_bytes": 0.0,
        "graph_bytes": 0.0,
        "multi_gpu_bytes": 0.0,
        "activation_bytes_per_token_width": 0.0,
        "overhead_bytes": 0.0,
    }
    host = EngineHost(step_s=0.0, request_s=0.0, prefill_token_s=0.0, arrival_s=0.0)
    facts: dict[str, Any] = {
        "name": "unit",
        "version": "0",
        "memory": EngineMemory(**plain | (memory or {})),
        "host": host,
        "rules": EngineRules(**(rules or {})),
        "source": SOURCE,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1024,
        "block_tokens": 16,
        "hbm_fraction": 1.0,
        "exchange": "deepep",
    }
    return Engine(**facts | changes)


def deployment(
    model: Model,
    *,
    precision: Precision | None = None,
    layout: Layout | None = None,
    on: GPU | None = None,
    by: Engine | None = None,
    joined: Fabric | None = None,
    n_replicas: int = 1,
    **changes: Any,
) -> Deployment:
    """`model` on one pool."""
    pool = Pool(
        gpu=on or gpu(),
        fabric=joined or fabric(),
        layout=layout or Layout(),
        engine=by or engine(),
        n_replicas=n_replicas,
    )
    facts: dict[str, Any] = {
        "model": model,
        "precision": precision or Precision(),
        "pools": (pool,),
    }
    return Deployment(**facts | changes)


def model(
    *layers: LayerGroup, name: str = "unit", d_model: int, vocab: int, **changes: Any
) -> Model:
    """A model of these layers."""
    facts: dict[str, Any] = {
        "name": name,
        "d_model": d_model,
        "vocab_size": vocab,
        "layers": layers,
        "tied_embeddings": False,
        "max_context_tokens": 131072,
        "source": SOURCE,
    }
    return Model(**facts | changes)


def dense(
    name: str,
    *,
    n: int,
    d: int,
    heads: int,
    kv: int,
    d_ff: int,
    vocab: int,
    d_head: int,
    **more: Any,
) -> Model:
    """A GQA transformer with SwiGLU."""
    attention_keys = ("bias", "qk_norm")
    attention = {key: more.pop(key) for key in attention_keys if key in more}
    group = LayerGroup(
        repeat=n,
        attention=GQA(n_heads=heads, n_kv_heads=kv, d_head=d_head, **attention),
        ffn=Dense(d_ff=d_ff),
    )
    return model(group, name=name, d_model=d, vocab=vocab, **more)


def tiny() -> Model:
    """Two layers of 8 heads × 16, d_model 128: sums by hand."""
    return dense("tiny", n=2, d=128, heads=8, kv=4, d_ff=256, vocab=1024, d_head=16)


def llama_8b() -> Model:
    """Llama-3.1-8B."""
    return dense("llama-3.1-8b", n=32, d=4096, heads=32, kv=8, d_ff=14336, vocab=128256, d_head=128)


def qwen3_32b() -> Model:
    """Qwen3-32B."""
    return dense(
        "qwen3-32b",
        n=64,
        d=5120,
        heads=64,
        kv=8,
        d_ff=25600,
        vocab=151936,
        d_head=128,
        qk_norm=True,
    )


def deepseek_v3(*, sparse: bool = False, speculative: bool = False) -> Model:
    """DeepSeek-V3, or V3.2 with its indexer."""
    shape = {
        "n_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "d_nope": 128,
        "d_rope": 64,
        "d_v": 128,
    }
    attention = (
        DSA(**shape, n_index_heads=64, d_index=128, top_k_tokens=2048) if sparse else MLA(**shape)
    )
    experts = MoE(
        n_experts=256, top_k=8, d_expert=2048, n_shared=1, d_shared=2048, router_bias=True
    )
    routed = LayerGroup(repeat=58, attention=attention, ffn=experts)
    module = Speculative(n_layers=1, layer=LayerGroup(repeat=1, attention=attention, ffn=experts))
    return model(
        LayerGroup(repeat=3, attention=attention, ffn=Dense(d_ff=18432)),
        routed,
        name="deepseek-v3.2" if sparse else "deepseek-v3",
        d_model=7168,
        vocab=129280,
        checkpoint=DType.FP8_BLOCK,
        max_context_tokens=163840,
        speculative=module if speculative else None,
    )


def sliding_hybrid() -> Model:
    """One layer in six sees all of the context, the rest a window of 1024 tokens."""
    heads = {"n_heads": 8, "n_kv_heads": 4, "d_head": 16}
    window = LayerGroup(
        repeat=5, attention=Sliding(**heads, window_tokens=1024), ffn=Dense(d_ff=256)
    )
    full = LayerGroup(repeat=1, attention=GQA(**heads), ffn=Dense(d_ff=256))
    return model(window, full, name="sliding", d_model=128, vocab=1024)


def linear_hybrid() -> Model:
    """Three recurrent layers to one of full attention."""
    mixer = Linear(n_heads=8, d_head=16, n_groups=8, d_state=16, d_conv=4, variant="gdn")
    full = GQA(n_heads=8, n_kv_heads=4, d_head=16)
    return model(
        LayerGroup(repeat=3, attention=mixer, ffn=Dense(d_ff=256)),
        LayerGroup(repeat=1, attention=full, ffn=Dense(d_ff=256)),
        name="linear",
        d_model=128,
        vocab=1024,
    )


def mixture() -> Model:
    """Two layers of 16 experts, 2 of them per token, and a shared one."""
    return mixture_of(n_experts=16, top_k=2, d_expert=64, heads=8, kv=4, n_shared=1, d_shared=64)


def mixture_of(
    *, n_experts: int, top_k: int, d_expert: int, heads: int, kv: int, **more: Any
) -> Model:
    """Two layers of experts behind GQA of heads of 16 or 128."""
    attention = GQA(n_heads=heads, n_kv_heads=kv, d_head=16 if heads == 8 else 128)
    experts = MoE(n_experts=n_experts, top_k=top_k, d_expert=d_expert, **more)
    layers = LayerGroup(repeat=2, attention=attention, ffn=experts)
    return model(layers, name="mixture", d_model=128, vocab=1024)


FP8_BLOCK = Precision(weights=DType.FP8_BLOCK, activations=DType.FP8)
