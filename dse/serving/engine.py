"""An engine profile: what a serving engine of one version does, as data with a source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from dse.base.bounds import require_positive
from dse.base.keys import Key
from dse.base.units import Bytes, Count, Fraction, Seconds, Tokens
from dse.serving.schedulers import DEFAULT_SCHEDULER, SCHEDULERS, Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """What the engine takes from HBM beside weights and KV.

    `pool_rule`: `of_total` keeps `hbm_fraction · visible − weights − overheads` for KV (vLLM,
    SGLang); `of_free` keeps `hbm_fraction · (visible − weights − overheads)` (TensorRT-LLM).
    Activations peak at `activation_bytes_per_token_width · max_num_batched_tokens · width`, width
    being d_model + the widest intermediate of a rank, plus what sampling takes: the logits of
    `max_num_seqs` rows, gathered whole on each rank, at `logits_bytes_per_element` (fp32, sorted
    copies, indices and probabilities together). `multi_gpu_bytes` is added when a replica has more
    than one GPU. Experts in MXFP4 are loaded with a rank's width rounded up to
    `mxfp4_width_multiple`. Under attention DP with EP, `dense_ffn_whole_with_ep` keeps the dense
    FFN whole on each rank, which runs its share of the tokens (SGLang, `--moe-dense-tp-size 1`).
    """

    pool_rule: Literal["of_total", "of_free"]
    context_bytes: Bytes
    graph_bytes: Bytes
    multi_gpu_bytes: Bytes
    activation_bytes_per_token_width: float
    logits_bytes_per_element: float = 4.0
    hybrid_kv: bool = True
    state_page_aligned: bool = True
    vocab_pad: int = 64
    shared_expert_sharded: bool = False
    dense_ffn_over_dp: bool = False
    dense_ffn_whole_with_ep: bool = False
    vocab_over_dp: bool = False
    mxfp4_width_multiple: int = 1
    overhead_bytes: Bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHost:
    """Time of the host: per step, per scheduled request, per prefill token; per request once in
    TTFT (API and tokeniser). `overlapped` means asynchronous scheduling: the host works on the next
    step while the GPU runs this one, and only the excess shows. `eager_op_s` is what the host needs
    to launch one kernel of a step that no CUDA graph covers, one with prompt tokens: such a step
    takes at least that for each of its kernels. `prefill_gap` is by what share a step with prompt
    tokens takes longer than its kernels, measured end to end: gaps between eager launches, and
    kernels that no account lists (gather, scatter, metadata). It is fitted beside tables of
    isolated kernels; tables measured inside the engine's steps hold it already.
    """

    step_s: Seconds
    request_s: Seconds
    prefill_token_s: Seconds
    arrival_s: Seconds
    overlapped: bool = False
    graph_batch_multiple: int = 8
    launch_overlap: Fraction = 0.0
    eager_op_s: Seconds = 0.0
    prefill_gap: Fraction = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """What the engine refuses.

    `expert_parallel`: `free` (any ep with the identity), `tp_or_ep` (expert TP equals TP, or pure
    EP over tp·dp). `dp_divides_tp`: SGLang counts tp as the whole world and dp must divide it.
    `dp_excludes_tp`: under attention DP each rank has all heads (TensorRT-LLM).
    `pads_blocks`: block-quantised widths need not stay multiples of the block. `weight_only`:
    formats that the engine runs on GPUs without such tensor cores by dequantising weights.
    `deepep_needs_whole_ep`: DeepEP starts only where each rank of a stage holds experts of its own.
    `gpu_block_rules`: the multiple a per-rank expert width must have on a GPU architecture
    (`blackwell`), or there in one weight format (`blackwell/bf16`).
    """

    expert_parallel: Literal["free", "tp_or_ep"] = "free"
    dp_divides_tp: bool = False
    dp_needs_mla_or_ep: bool = False
    dp_excludes_tp: bool = False
    pads_blocks: bool = False
    weight_only: tuple[str, ...] = ()
    max_pp: Count = 1024
    redundant_experts: bool = True
    context_parallel: bool = True
    deepep_needs_whole_ep: bool = False
    gpu_block_rules: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorAttention:
    """Decode attention of an engine whose tensor-core kernel covers few shapes: a KV head shared by
    one of `grouped_heads` query heads, `grouped_d_heads` wide. Elsewhere the vector units of an SM
    take `elements_per_clock` of keys and values, anew for each query head, unless HBM at
    `hbm_share` of its bandwidth is slower.
    """

    grouped_heads: tuple[int, ...]
    grouped_d_heads: tuple[int, ...]
    elements_per_clock: float
    hbm_share: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine with its settings. `exchange` is the expert exchange backend under attention DP:
    `deepep` (all-to-all of routed tokens), `all_gather` (all-gather and reduce-scatter of all
    tokens), TEP always uses all-reduce; a layout under which DeepEP does not start gathers. Where
    tokens are gathered, `gathers_whole_layer` says that the shared expert too is cut over all ranks
    and runs on all tokens, and that attention TP reduce-scatters before the gather and gathers
    after it, in place of an all-reduce (SGLang). Elsewhere under attention DP with TP and EP,
    `tp_tokens` says what each TP rank routes and runs through the shared expert: the `whole` of its
    DP rank's tokens, or the share that it sends, a `slice` cut off after the all-reduce of
    attention, or what a reduce-scatter in its place leaves (`scatter`: norms too run on it); an
    all-gather follows. `kernels` maps an op
    family (`moe`), or a number format of it (`gemm/fp8`), to the implementation that runs it, or to
    the engine whose measurements stand for it. `vector_attention` says which decode attention it
    runs without tensor cores; None: none. `scale_pass_s` is what it takes to compute the scale of
    an input before each matrix product in FP8; 0 where the checkpoint holds it.
    """

    name: str = field(compare=False)
    version: str = field(compare=False)
    memory: EngineMemory
    host: EngineHost
    rules: EngineRules
    source: str = field(compare=False)
    max_num_batched_tokens: Annotated[Tokens, Key("max_num_batched_tokens")]
    max_num_seqs: Count
    block_tokens: Annotated[Tokens, Key("block_tokens")]
    hbm_fraction: Fraction
    exchange: Literal["deepep", "all_gather"] = "all_gather"
    gathers_whole_layer: bool = False
    tp_tokens: Literal["whole", "slice", "scatter"] = "whole"
    prefix_caching: bool = True
    scheduler: Annotated[Scheduler, SCHEDULERS] = DEFAULT_SCHEDULER
    kernels: Mapping[str, str] = field(default_factory=dict)
    vector_attention: VectorAttention | None = None
    scale_pass_s: Seconds = 0.0
    notes: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuse settings under which no step could hold a token."""
        require_positive(self, "max_num_batched_tokens", "max_num_seqs", "block_tokens")

    @property
    def label(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"
