"""The vocabulary of work: what one rank computes or sends, as shapes and nothing else.

Fields typed `Num` hold a number or a numpy array; arrays broadcast, so that one formula prices a
single kernel and a whole grid. Dimensions are those of one rank, after sharding.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dse.hardware.dtype import DType

Num = Any


def least(value: Num, bound: float) -> Num:
    """`min(value, bound)` for a number or, element by element, an array."""
    return value - (value - bound) * (value > bound)


def most(value: Num, bound: float) -> Num:
    """`max(value, bound)` for a number or, element by element, an array."""
    return value - (value - bound) * (value < bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`m × k` activations times `k × n` weights."""

    family: ClassVar[str] = "gemm"
    m: Num
    n: Num
    k: Num
    weights: DType
    activations: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedGemm:
    """The routed experts of one MoE layer on one rank: gate and up, activation, down.

    `rows` (token, expert) pairs fall on this rank and touch `touched` of its `n_experts` experts;
    each expert is `d_model × d_ff`, with a gate if `gated`. `tokens` is what enters before routing.
    """

    family: ClassVar[str] = "moe"
    tokens: Num
    rows: Num
    touched: Num
    n_experts: Num
    top_k: Num
    d_model: Num
    d_ff: Num
    gated: bool
    weights: DType
    activations: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillAttention:
    """Causal attention of `n_seqs` sequences, each `q_tokens` new on `cached_tokens` cached.

    `d_qk` and `d_v` are per head. `window_tokens` limits the keys of a query (None: all).
    """

    family: ClassVar[str] = "prefill_attention"
    n_seqs: Num
    q_tokens: Num
    cached_tokens: Num
    n_heads: Num
    n_kv_heads: Num
    d_qk: Num
    d_v: Num
    kv: DType
    window_tokens: Num | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention:
    """One decode step: `n_seqs` sequences, `q_tokens` queries each, mean context `context_tokens`
    (already limited to a window where the layer has one). `windowed` says that the layer has one:
    FlashAttention-2 neither splits the context nor shares a tile among query heads then.
    """

    family: ClassVar[str] = "decode_attention"
    n_seqs: Num
    q_tokens: Num
    context_tokens: Num
    n_heads: Num
    n_kv_heads: Num
    d_qk: Num
    d_v: Num
    kv: DType
    windowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MLADecode:
    """Absorbed MLA decode: each query attends to `context_tokens` latents of `d_latent + d_rope`.

    `bytes_per_token` is what the engine's layout reads per token (576 × 2 in bf16, 656 in FP8).
    """

    family: ClassVar[str] = "mla_decode"
    n_seqs: Num
    q_tokens: Num
    context_tokens: Num
    n_heads: Num
    d_latent: Num
    d_rope: Num
    bytes_per_token: Num
    kv: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class MLAPrefill:
    """Unabsorbed MLA prefill: `d_qk = d_nope + d_rope` and `d_v` per head, causal.

    `selected_tokens` bounds the keys of a query under sparse attention (None: all).
    """

    family: ClassVar[str] = "mla_prefill"
    n_seqs: Num
    q_tokens: Num
    cached_tokens: Num
    n_heads: Num
    d_qk: Num
    d_v: Num
    kv: DType
    selected_tokens: Num | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The scoring pass of sparse attention (DeepSeek DSA): `pairs` (query, key) scores in all, by
    `n_heads` heads of `d_head` in FP8, reading `key_bytes` of index keys.
    """

    family: ClassVar[str] = "indexer"
    pairs: Num
    n_heads: Num
    d_head: Num
    key_bytes: Num


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """State-space or linear attention: `tokens` new tokens of `n_seqs` sequences update a state of
    `state_bytes` each and spend `flop_per_token`.
    """

    family: ClassVar[str] = "linear_attention"
    n_seqs: Num
    tokens: Num
    state_bytes: Num
    flop_per_token: Num
    activation_bytes_per_token: Num


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """A kernel bound by bandwidth (norm, RoPE, activation, KV write, embedding, sampling).

    `name` says which; `n_bytes` is read plus written.
    """

    family: ClassVar[str] = "elementwise"
    name: str
    n_bytes: Num


CollectiveKind = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "ep_dispatch",
    "ep_combine",
    "p2p",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective among `n_ranks` neighbouring ranks with `stride` between them in rank order.

    `n_bytes` is the logical message of a rank: the reduced tensor of an all-reduce, the gathered
    whole of an all-gather or reduce-scatter, the sent payload of a p2p. For `ep_dispatch` and
    `ep_combine`, `n_bytes` is what one rank's `tokens` weigh once (tokens × hidden × dtype) and
    `top_k` the experts each goes to, out of at most `top_groups` of `groups` of experts.
    """

    family: ClassVar[str] = "collective"
    kind: CollectiveKind
    n_bytes: Num
    n_ranks: int
    stride: int = 1
    tokens: Num = 0
    top_k: int = 1
    groups: int = 1
    top_groups: int = 1


ComputeOp = (
    Gemm
    | GroupedGemm
    | PrefillAttention
    | DecodeAttention
    | MLADecode
    | MLAPrefill
    | Indexer
    | LinearAttention
    | Elementwise
)
Op = ComputeOp | Collective
