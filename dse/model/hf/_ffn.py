"""The feed-forward block of each layer."""

from __future__ import annotations

from dse.model.ffn import FFN
from dse.model.ffn.dense import Dense
from dse.model.ffn.moe import MoE, group_fault
from dse.model.hf._config import Config
from dse.model.hf._recipes import Recipe

_EXPERTS = (
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "num_routed_experts",
    "moe_num_experts",
)
_TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "experts_per_token",
    "moe_k",
)
_STEP = ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval")
_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
    "share_expert_dim",
)


def ffns(cfg: Config, recipe: Recipe, n_layers: int) -> list[FFN]:
    """The feed-forward block of every layer, in order."""
    sparse = _sparse_layers(cfg, n_layers)
    experts: FFN | None = moe(cfg, recipe) if any(sparse) else None
    single: FFN | None = None if all(sparse) else dense(cfg, recipe)
    # The dense width of a model whose layers all route is in the file and means nothing.
    cfg.get("intermediate_size", "intermediate_size_mlp", "dense_intermediate_size")
    found = [experts if routed else single for routed in sparse]
    return [block for block in found if block is not None]


def dense(cfg: Config, recipe: Recipe) -> Dense:
    """A dense block."""
    cfg.get("mlp_bias", "mlp_type")
    own = ("intermediate_size_mlp", "dense_intermediate_size")
    named = ("intermediate_size", "n_inner", "ffn_dim")
    if cfg.has(*own):
        width = cfg.count(*own)
    elif cfg.has(*named):
        width = cfg.count(*named)
    elif "n_inner" in cfg.text:  # GPT-2 style: null means four times the model width
        width = 4 * cfg.count("hidden_size", "n_embd")
    else:
        raise cfg.error("missing key 'intermediate_size'")
    return Dense(d_ff=width, gated=recipe.gated, bias=recipe.ffn_bias or cfg.flag("mlp_bias"))


def moe(cfg: Config, recipe: Recipe) -> MoE:
    """Routed experts and the shared width beside them."""
    own = ("moe_intermediate_size", "expert_intermediate_size")
    d_expert = cfg.count(*own) if cfg.has(*own) else cfg.count("intermediate_size")
    n_shared, d_shared = _shared(cfg, recipe, d_expert)
    method = cfg.get("topk_method")
    has_correction = method == "noaux_tc"
    n_groups, top_groups = _groups(cfg, limited=method != "greedy")
    n_experts, top_k = cfg.count(*_EXPERTS), cfg.count(*_TOP_K)
    if top_k > n_experts:
        raise cfg.error(f"{top_k} experts per token of {n_experts}")
    return MoE(
        n_experts=n_experts,
        top_k=top_k,
        d_expert=d_expert,
        n_shared=n_shared,
        d_shared=d_shared,
        shared_gate=recipe.shared_gate and n_shared > 0,
        router_bias=recipe.router_bias
        or has_correction
        or cfg.flag("use_routing_bias", "use_moe_router_bias"),
        expert_bias=recipe.expert_bias,
        gated=recipe.gated,
        d_expert_model=cfg.count("moe_latent_size", "routed_expert_hidden_size", default=0) or None,
        n_groups=n_groups,
        top_groups=top_groups,
    )


def _groups(cfg: Config, *, limited: bool) -> tuple[int, int]:
    """Groups of experts, and of how many a token's experts come; (1, 1) without a limit."""
    n_groups = cfg.count("n_group", "num_expert_group", default=1)
    top_groups = cfg.count("topk_group", default=1 if n_groups == 1 or not limited else None)
    if n_groups == 1 or not limited:
        return 1, 1
    n_experts, top_k = cfg.count(*_EXPERTS), cfg.count(*_TOP_K)
    if fault := group_fault(n_experts, top_k, n_groups, top_groups):
        raise cfg.error(*fault)
    return n_groups, top_groups


def is_moe(cfg: Config) -> bool:
    """Whether the file describes routed experts at all."""
    return bool(cfg.get(*_EXPERTS)) and cfg.flag("enable_moe_block", default=True)


def _shared(cfg: Config, recipe: Recipe, d_expert: int) -> tuple[int, int]:
    """(number, width of each) of the shared experts."""
    keys = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    n_shared = cfg.count(*keys, default=0) if cfg.has(*keys) else recipe.n_shared
    if cfg.flag("enable_moe_block"):  # Gemma 4: the dense block runs beside the routed experts
        return 1, cfg.count("intermediate_size")
    if cfg.has(*_SHARED_WIDTH):
        width = cfg.count(*_SHARED_WIDTH, default=0)
        return (1, width) if width else (0, 0)
    return (n_shared, d_expert) if n_shared else (0, 0)


def _sparse_layers(cfg: Config, n_layers: int) -> list[bool]:
    """Whether each layer routes to experts."""
    if not is_moe(cfg):
        cfg.get(*_TOP_K, "moe_intermediate_size", "expert_intermediate_size", *_SHARED_WIDTH)
        cfg.get("decoder_sparse_step", "mlp_only_layers")
        return [False] * n_layers
    first = cfg.count("first_k_dense_replace", "moe_layer_start_index", default=0)
    last = cfg.count("moe_layer_end_index", default=n_layers - 1, least=0)
    listed = cfg.per_layer("mlp_layer_types", n_layers)
    marks = cfg.get("moe_layer_freq")
    step = cfg.count(*_STEP, default=1)
    only_dense = cfg.listed("mlp_only_layers")
    if listed is not None:
        return [kind == "sparse" for kind in listed]
    if isinstance(marks, list):
        return [bool(mark) for mark in cfg.per_layer("moe_layer_freq", n_layers) or ()]
    frequency = cfg.count("moe_layer_freq", default=1)
    return [
        first <= i <= last and i % frequency == 0 and (i + 1) % step == 0 and i not in only_dense
        for i in range(n_layers)
    ]
