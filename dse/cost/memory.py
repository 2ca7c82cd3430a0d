"""What one rank keeps in HBM: weights by tensor class, engine overheads, and the KV pool left.

Physics: weights are those of the pipeline stage that limits the replica; KV of a request is
`fixed + Σ bytes_per_token · min(context, window)`, rounded to blocks; the pool follows the engine's
rule. Bytes are plain (GB = 1e9, GiB = 2^30).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dse.hardware.dtype import DType
from dse.model.attention import Attention
from dse.model.model import LayerGroup, Model
from dse.model.precision import Precision
from dse.model.shard import WHOLE, Shard
from dse.model.tensor import Tensor
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import EngineMemory

# Attention kernels of vLLM take blocks in multiples of 16 tokens when a page is enlarged.
PAGE_ALIGN_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCurve:
    """Bytes that one request stores on one rank.

    `full` per token of context, each `(window, bytes)` of `windows` per token up to its window, and
    `fixed` whatever the context; `block_tokens` is the allocation unit (of a whole CP group).
    """

    full_bytes_per_token: float
    windows: tuple[tuple[int, float], ...]
    fixed_bytes: float
    block_tokens: int

    def request_bytes(self, context_tokens: float) -> float:
        """Bytes of one request with `context_tokens`, each term in whole blocks."""
        total = self.fixed_bytes + self.full_bytes_per_token * self._rounded(context_tokens)
        for window, per_token in self.windows:
            total += per_token * self._rounded(min(context_tokens, window))
        return total

    @property
    def first_token_bytes(self) -> float:
        """Bytes per token below every window."""
        return self.full_bytes_per_token + sum(per_token for _, per_token in self.windows)

    def _rounded(self, tokens: float) -> float:
        return math.ceil(tokens / self.block_tokens) * self.block_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """HBM of one rank of the stage that limits the replica.

    `weights` by tensor class and `overheads` by name in bytes; `kv_pool_bytes` may be negative: the
    rank then lacks that much. `dp` ranks of a replica each hold requests of their own.
    """

    stage: int
    hbm_bytes: float
    weights: Mapping[str, float]
    overheads: Mapping[str, float]
    kv_pool_bytes: float
    kv: KVCurve
    dp: int
    max_context_tokens: int

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights of the rank."""
        return sum(self.weights.values())

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes per token of context beyond every window."""
        return self.kv.full_bytes_per_token

    @property
    def windowed_bytes_per_token(self) -> tuple[tuple[int, float], ...]:
        """`(window_tokens, bytes_per_token)` of layers that store no more than a window."""
        return self.kv.windows

    @property
    def kv_fixed_bytes_per_request(self) -> float:
        """Bytes per request whatever its context (recurrent state)."""
        return self.kv.fixed_bytes

    @property
    def fits(self) -> bool:
        """Whether weights and the shortest request find room."""
        return self.kv_pool_bytes > 0 and self.kv.request_bytes(1) <= self.kv_pool_bytes

    def request_bytes(self, context_tokens: float) -> float:
        """KV bytes on this rank of one request with `context_tokens`."""
        return self.kv.request_bytes(context_tokens)

    @property
    def n_blocks(self) -> int:
        """Blocks that one DP rank's engine logs."""
        return self.kv_pool_tokens() // self.kv.block_tokens

    def kv_pool_tokens(self, max_context_tokens: int | None = None) -> int:
        """Tokens that one DP rank's engine logs, in whole blocks.

        Where windows or state make bytes per token depend on length, it is the concurrency at
        `max_context_tokens` (the model's own if None) times that length, as vLLM prints it.
        """
        if self.kv_pool_bytes <= 0:
            return 0
        kv = self.kv
        if not kv.windows and not kv.fixed_bytes:
            per_block = kv.full_bytes_per_token * kv.block_tokens
            blocks = math.floor(self.kv_pool_bytes / per_block) if per_block else 0
            return blocks * kv.block_tokens
        length = max_context_tokens or self.max_context_tokens
        return math.floor(self.kv_pool_bytes / kv.request_bytes(length) * length)

    def b_max(self, context_tokens: float) -> int:
        """Requests with `context_tokens` that a replica holds at once: dp · floor(pool / bytes)."""
        if self.kv_pool_bytes <= 0:
            return 0
        n_bytes = self.kv.request_bytes(context_tokens)
        return self.dp * math.floor(self.kv_pool_bytes / n_bytes) if n_bytes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageContent:
    """What a rank of one pipeline stage holds, whatever GPU it is: weights by class, KV, and what
    the engine takes beside them.
    """

    weights: Mapping[str, float]
    overheads: Mapping[str, float]
    kv: KVCurve


def stage_contents(deployment: Deployment, pool: Pool) -> tuple[StageContent, ...]:
    """The content of each stage; the GPU plays no part."""
    overheads = engine_overheads(deployment, pool)
    return tuple(
        StageContent(
            weights=stage_weights(deployment, pool, stage),
            overheads=overheads,
            kv=kv_curve(deployment, pool, stage),
        )
        for stage in range(pool.layout.pp)
    )


def rank_memory(
    deployment: Deployment, pool: Pool, contents: tuple[StageContent, ...] | None = None
) -> RankMemory:
    """Memory of a rank in the stage of `pool` that holds the fewest of the longest requests.

    `contents` saves counting them where many GPUs hold the same.
    """
    longest = deployment.model.max_context_tokens
    found: list[RankMemory] = []
    for stage, content in enumerate(contents or stage_contents(deployment, pool)):
        available = deployment.kv_pool_bytes
        if available is None:
            taken = sum(content.weights.values()) + sum(content.overheads.values())
            available = _pool_bytes(pool, taken)
        found.append(
            RankMemory(
                stage=stage,
                hbm_bytes=pool.gpu.hbm_bytes,
                weights=content.weights,
                overheads=content.overheads,
                kv_pool_bytes=available,
                kv=content.kv,
                dp=pool.layout.dp,
                max_context_tokens=longest,
            )
        )
    if len(found) == 1:
        return found[0]
    return min(found, key=lambda each: each.kv_pool_bytes / (each.request_bytes(longest) or 1.0))


def stage_weights(deployment: Deployment, pool: Pool, stage: int) -> dict[str, float]:
    """Weight bytes of one rank of pipeline stage `stage`, by tensor class."""
    found: dict[str, float] = {}
    precision = deployment.precision
    pad = pool.engine.memory.vocab_pad
    padding = _expert_padding(deployment, pool)
    for tensor, repeat in _stage_tensors(deployment, pool.shard(), stage, pool.layout.pp, pad):
        n_bytes = repeat * tensor.total_elements * precision.of(tensor.cls).bytes_per_element
        if tensor.cls == "expert":
            n_bytes *= padding
        if n_bytes:
            found[tensor.cls] = found.get(tensor.cls, 0.0) + n_bytes
    factor = checkpoint_factor(deployment.model, precision)
    return {cls: n_bytes * factor for cls, n_bytes in found.items()}


def _expert_padding(deployment: Deployment, pool: Pool) -> float:
    """Loaded ÷ stored width of a rank's experts: MXFP4 kernels want a multiple."""
    multiple = pool.engine.memory.mxfp4_width_multiple
    widths = [group.ffn.widths().get("expert", 0) for group in deployment.model.layers]
    width = max(widths, default=0) / pool.shard().moe_tp
    if not width or deployment.precision.of("expert") is not DType.MXFP4:
        return 1.0
    return math.ceil(width / multiple) * multiple / width


def checkpoint_factor(model: Model, precision: Precision) -> float:
    """Real bytes of the checkpoint ÷ those counted, where the model file gives them and the weights
    are loaded as stored; else 1.
    """
    if model.checkpoint_bytes is None or precision.weights is not model.checkpoint:
        return 1.0
    counted = sum(
        repeat * tensor.total_elements * precision.of(tensor.cls).bytes_per_element
        for tensor, repeat in _model_tensors(model, WHOLE, model.speculative is not None)
    )
    return model.checkpoint_bytes / counted


def aligned_block_tokens(
    state_bytes: float, kv_bytes_per_token: float, block_tokens: int, align: int = PAGE_ALIGN_TOKENS
) -> int:
    """Tokens of an attention block whose page is no smaller than the `state_bytes` of a recurrent
    layer, both of one layer: vLLM gives every layer of a hybrid model the same page size.
    """
    if not state_bytes or not kv_bytes_per_token:
        return block_tokens
    tokens = math.ceil(state_bytes / kv_bytes_per_token / align) * align
    return max(block_tokens, tokens)


def _pool_bytes(pool: Pool, used_bytes: float) -> float:
    fraction, visible = pool.engine.hbm_fraction, pool.gpu.hbm_bytes
    if pool.engine.memory.pool_rule == "of_free":
        return fraction * (visible - used_bytes)
    return fraction * visible - used_bytes


def engine_overheads(deployment: Deployment, pool: Pool) -> dict[str, float]:
    """Bytes per GPU that the engine takes beside weights and KV, by name."""
    memory = pool.engine.memory
    if memory.overhead_bytes is not None:
        return {"stated": memory.overhead_bytes}
    return {
        "context": memory.context_bytes,
        "graphs": memory.graph_bytes,
        "communication": memory.multi_gpu_bytes if pool.layout.n_gpus > 1 else 0.0,
        "activations": _activation_bytes(deployment.model, pool, memory),
    }


def _activation_bytes(model: Model, pool: Pool, memory: EngineMemory) -> float:
    shard, engine = pool.shard(), pool.engine
    widest = max((_widest(group, shard) for group in model.layers), default=0.0)
    per_token = memory.activation_bytes_per_token_width * (model.d_model + widest)
    logits = engine.max_num_seqs * model.vocab_size * memory.logits_bytes_per_element
    return engine.max_num_batched_tokens * per_token + logits


def _widest(group: LayerGroup, shard: Shard) -> float:
    widths, ffn = group.ffn.widths(), group.ffn
    top_k = getattr(ffn, "top_k", 0)
    return max(
        widths.get("dense", 0) / (shard.dense_tp * shard.dense_split),
        widths.get("shared", 0) / (shard.shared_tp * shard.moe_split),
        top_k * widths.get("expert", 0) / shard.moe_tp,
    )


def kv_curve(deployment: Deployment, pool: Pool, stage: int) -> KVCurve:
    """What a request stores on one rank of `stage`."""
    layers = list(_stage_attentions(deployment, stage, pool.layout.pp))
    shard, kv, memory = pool.shard(), deployment.precision.kv, pool.engine.memory
    full, fixed, state_page = 0.0, 0.0, 0.0
    windows: dict[int, float] = {}
    for attention, repeat in layers:
        per_token = repeat * attention.kv_bytes_per_token(shard, kv)
        if attention.window is not None and memory.hybrid_kv:
            windows[attention.window] = windows.get(attention.window, 0.0) + per_token
        else:
            full += per_token
        state = attention.state_bytes(shard, kv)
        state_page, fixed = max(state_page, state), fixed + repeat * state
    block = pool.engine.block_tokens
    per_layer = max((a.kv_bytes_per_token(shard, kv) for a, _ in layers), default=0.0)
    if memory.state_page_aligned and state_page and per_layer:
        block = aligned_block_tokens(state_page, per_layer, block)
        fixed = _aligned_state(layers, shard, kv, block * per_layer)
    return KVCurve(
        full_bytes_per_token=full,
        windows=tuple(sorted((w, b) for w, b in windows.items() if b)),
        fixed_bytes=fixed,
        block_tokens=block * pool.layout.cp,
    )


def _aligned_state(
    layers: list[tuple[Attention, int]], shard: Shard, kv: DType, page_bytes: float
) -> float:
    """State bytes of a request when each recurrent layer takes whole pages."""
    return sum(
        repeat * math.ceil(attention.state_bytes(shard, kv) / page_bytes) * page_bytes
        for attention, repeat in layers
    )


def _stage_attentions(
    deployment: Deployment, stage: int, pp: int
) -> Iterator[tuple[Attention, int]]:
    model = deployment.model
    for group in model.stage(stage, pp):
        yield group.attention, group.repeat
    if stage == pp - 1 and _drafts(deployment) and model.speculative is not None:
        yield model.speculative.layer.attention, model.speculative.n_layers


def _drafts(deployment: Deployment) -> bool:
    return deployment.speculative is not None and deployment.speculative.method == "mtp"


def _stage_tensors(
    deployment: Deployment, shard: Shard, stage: int, pp: int, pad: int
) -> Iterator[tuple[Tensor, float]]:
    model = deployment.model
    for group in model.stage(stage, pp):
        for tensor in group.tensors(model.d_model, shard):
            yield tensor, group.repeat
    first, last = stage == 0, stage == pp - 1
    embed, positions, head, norm = model.embedding_tensors(shard.vocab_tp, pad)
    if first:
        yield from ((embed, 1), (positions, 1), *((tensor, 1) for tensor in _extras(model)))
    if last:
        # A tied head on another stage than the embedding is a second copy.
        yield (replace(embed, cls="head") if model.tied_embeddings and not first else head), 1
        yield norm, 1
        if _drafts(deployment):
            yield from _draft_tensors(model, shard)


def _model_tensors(model: Model, shard: Shard, drafts: bool) -> Iterator[tuple[Tensor, float]]:
    for group in model.layers:
        for tensor in group.tensors(model.d_model, shard):
            yield tensor, group.repeat
    yield from ((tensor, 1) for tensor in (*model.embedding_tensors(), *_extras(model)))
    if drafts:
        yield from _draft_tensors(model, shard)


def _extras(model: Model) -> Iterator[Tensor]:
    yield Tensor("other", "other", model.extra_parameters)
    if model.multimodal is not None:
        yield Tensor("encoders", "other", model.multimodal.parameters)


def _draft_tensors(model: Model, shard: Shard) -> Iterator[tuple[Tensor, float]]:
    module = model.speculative
    if module is None:
        return
    for tensor in module.layer.tensors(model.d_model, shard):
        yield tensor, module.n_layers
    # The projection of [hidden; embedding] and its two norms (DeepSeek-V3, section 2.2).
    yield Tensor("eh_proj", "other", 2.0 * model.d_model**2), module.n_layers
    yield Tensor("draft_norms", "norm", 2.0 * model.d_model), module.n_layers
