"""Which layouts an engine can start: each rule gives its reason with the numbers.

An illegal layout is data (`Illegal`), never an exception; nothing is rewritten to make it legal. A
rule is a function from the choice to what breaks it; `check` runs them all and looks for the
nearest legal degrees by running them again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dse.base.units import counted
from dse.hardware.dtype import DType
from dse.hardware.fabric import Fabric
from dse.hardware.gpu import GPU
from dse.model.attention import Attention
from dse.model.ffn import FFN
from dse.model.model import Model
from dse.model.precision import Precision
from dse.model.shard import WHOLE, Shard, kv_heads_per_rank
from dse.serving.deployment import SpeculativeDecoding
from dse.serving.engine import Engine
from dse.serving.exchange import shard_of
from dse.serving.layout import Layout

# Formats whose kernels take whole quantisation blocks only; NVFP4 and MXFP4 kernels pad.
BLOCK_FORMATS = (DType.FP8_BLOCK, DType.INT4)
# Formats that some engine stores KV in; the others are formats of weights.
KV_FORMATS = (DType.FP32, DType.BF16, DType.FP16, DType.FP8, DType.INT8, DType.NVFP4)
# Engines that run on the accelerators of one vendor only (TensorRT-LLM, support matrix).
VENDORS = {"trtllm": "nvidia"}
# Degrees that engines are started with; the nearest legal ones are looked for among them.
DEGREES = (*range(1, 17), 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 128, 144, 160, 192, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Illegal:
    """One broken rule; `nearest` are single changes that make it legal, such as `tp=2`."""

    rule: str
    reason: str
    axes: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Say the reason and what would do instead."""
        return f"{self.reason}; legal: {' or '.join(self.nearest)}" if self.nearest else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What a rule may look at."""

    model: Model
    precision: Precision
    layout: Layout
    engine: Engine
    gpu: GPU
    fabric: Fabric | None
    n_gpus: int | None

    def ffns(self) -> list[FFN]:
        return list(dict.fromkeys(group.ffn for group in self.model.layers))

    def attentions(self) -> list[Attention]:
        return list(dict.fromkeys(group.attention for group in self.model.layers))

    def shard(self) -> Shard:
        return shard_of(self.layout, self.engine)

    def block(self, cls: str) -> int:
        """Elements that a sharded width of tensor class `cls` must be a multiple of."""
        dtype = self.precision.of(cls)
        padded = self.engine.rules.pads_blocks or dtype not in BLOCK_FORMATS
        return 1 if padded else dtype.block_elements

    def violations(self) -> tuple[Illegal, ...]:
        """Every broken rule once, without suggestions."""
        found: dict[str, Illegal] = {}
        # Divisions below need positive degrees.
        for rule in () if any(_degrees(self)) else _RULES:
            for illegal in rule(self):
                found.setdefault(illegal.reason, illegal)
        return (*_degrees(self), *found.values())


def check(
    model: Model,
    precision: Precision,
    layout: Layout,
    engine: Engine,
    gpu: GPU,
    *,
    fabric: Fabric | None = None,
    n_gpus: int | None = None,
    suggest: bool = True,
) -> tuple[Illegal, ...]:
    """Every rule that this choice breaks; empty when it is legal.

    `n_gpus` is the size of the pool (a replica's GPUs must divide it), `fabric` bounds the
    cluster. `suggest=False` leaves out the nearest legal values, which cost most of the time.
    """
    case = _Case(
        model=model,
        precision=precision,
        layout=layout,
        engine=engine,
        gpu=gpu,
        fabric=fabric,
        n_gpus=n_gpus,
    )
    found = case.violations()
    if not suggest:
        return found
    return tuple(replace(i, nearest=i.nearest or _nearest(case, i)) for i in found)


def check_speculative(model: Model, speculative: SpeculativeDecoding | None) -> tuple[Illegal, ...]:
    """The rule that only a model with modules of its own drafts by them."""
    if speculative is None or speculative.method != "mtp" or model.speculative is not None:
        return ()
    reason = f"{model.name} has no module for multi-token prediction (mtp)"
    return (Illegal(rule="speculative", reason=reason, nearest=("speculative=none",)),)


def check_context(model: Model, context_tokens: int) -> tuple[Illegal, ...]:
    """The rule that a request is no longer than the model's context."""
    most = model.max_context_tokens
    if context_tokens <= most:
        return ()
    reason = f"context {context_tokens} > {most}, the longest of {model.name}"
    return (Illegal(rule="context", reason=reason, nearest=(f"context={most}",)),)


def _nearest(case: _Case, illegal: Illegal) -> tuple[str, ...]:
    """The legal degrees just below and above on each axis of `illegal`, the rest unchanged; where
    other rules are broken too, those that at least keep this one.
    """
    found: list[str] = []
    for axis in illegal.axes:
        value = int(getattr(case.layout, axis))
        trials = {
            degree: replace(case, layout=_moved(case.layout, axis, degree), n_gpus=None)
            for degree in DEGREES
            if degree != value
        }
        broken = {degree: trial.violations() for degree, trial in trials.items()}
        legal = [degree for degree, rules in broken.items() if not rules]
        if not legal:
            legal = [d for d, rules in broken.items() if all(r.rule != illegal.rule for r in rules)]
        below = max((degree for degree in legal if degree < value), default=None)
        above = min((degree for degree in legal if degree > value), default=None)
        found += [f"{axis}={degree}" for degree in (below, above) if degree is not None]
    return tuple(found)


def _moved(layout: Layout, axis: str, degree: int) -> Layout:
    """`layout` with one degree changed; pure EP stays pure, expert TP follows the identity."""
    changes: dict[str, int | None] = {axis: degree, "moe_tp": None}
    if axis in ("tp", "dp") and layout.ep == layout.stage_ranks:
        changes["ep"] = layout.stage_ranks // int(getattr(layout, axis)) * degree
    return replace(layout, **changes)  # type: ignore[arg-type]


def _degrees(case: _Case) -> Iterator[Illegal]:
    for axis in ("tp", "dp", "ep", "pp", "cp", "moe_tp"):
        value = getattr(case.layout, axis)
        if value is not None and value < 1:
            reason = f"{axis} {value} is less than 1"
            yield Illegal(rule="degree", reason=reason, nearest=(f"{axis}=1",))


def _heads(case: _Case) -> Iterator[Illegal]:
    """Query heads are dealt whole to TP ranks."""
    tp = case.layout.tp
    for attention in case.attentions():
        heads = attention.n_query_heads()
        if heads % tp:
            reason = f"heads {heads} % TP {tp} = {heads % tp}"
            yield Illegal(rule="heads", reason=reason, axes=("tp",))


def _kv_heads(case: _Case) -> Iterator[Illegal]:
    """KV heads are dealt whole, or each is replicated on a whole number of ranks."""
    tp, cp = case.layout.tp, case.layout.cp
    for attention in case.attentions():
        kv = attention.n_key_value_heads()
        if kv is None:
            continue
        copies = max(1, tp // kv)
        if kv % tp and tp % kv:
            reason = f"KV heads {kv} % TP {tp} = {kv % tp} and TP {tp} % KV heads {kv} = {tp % kv}"
            yield Illegal(rule="kv_heads", reason=reason, axes=("tp",))
        elif copies % cp:
            reason = f"CP {cp} must divide the copies of each KV head: TP {tp} / KV heads {kv} = "
            reason += f"{copies}"
            yield Illegal(rule="context_parallel", reason=reason, axes=("cp",))


def _context_parallel(case: _Case) -> Iterator[Illegal]:
    tp, cp = case.layout.tp, case.layout.cp
    if cp > 1 and not case.engine.rules.context_parallel:
        reason = f"{case.engine.label} has no decode context parallelism (CP {cp})"
        yield Illegal(rule="context_parallel", reason=reason, nearest=("cp=1",))
    if tp % cp:
        reason = f"TP {tp} % CP {cp} = {tp % cp}"
        yield Illegal(rule="context_parallel", reason=reason, axes=("cp",))


def _identity(case: _Case) -> Iterator[Illegal]:
    """`tp · dp = ep · moe_tp` within a stage."""
    layout = case.layout
    whole, product = layout.stage_ranks, layout.ep * layout.expert_tp
    if not case.model.is_moe:
        if layout.ep != 1:
            reason = f"EP {layout.ep} on a model without experts"
            yield Illegal(rule="identity", reason=reason, nearest=("ep=1",))
    elif whole != product:
        reason = f"TP {layout.tp} x DP {layout.dp} = {whole} is not EP {layout.ep} x MoE-TP "
        reason += f"{layout.expert_tp} = {product}"
        yield Illegal(rule="identity", reason=reason, axes=("ep",))


def _experts(case: _Case) -> Iterator[Illegal]:
    """Experts, redundant copies included, are dealt whole to EP ranks."""
    ep, redundant = case.layout.ep, case.layout.redundant_experts
    for ffn in case.ffns():
        experts = ffn.widths().get("experts", 0)
        rest = (experts + redundant) % ep
        if experts and rest:
            copies = f" + redundant {redundant}" if redundant else ""
            reason = f"(experts {experts}{copies}) % EP {ep} = {rest}"
            whole = f"redundant_experts={redundant + ep - rest}"
            near = (*_nearest_divisors(experts + redundant, ep), whole)
            yield Illegal(rule="experts", reason=reason, nearest=near)
    if redundant and not case.engine.rules.redundant_experts:
        reason = f"{case.engine.label} has no redundant experts ({redundant})"
        yield Illegal(rule="experts", reason=reason, nearest=("redundant_experts=0",))


def _nearest_divisors(n: int, ep: int) -> tuple[str, ...]:
    below = max((d for d in DEGREES if d < ep and n % d == 0), default=None)
    above = min((d for d in DEGREES if d > ep and n % d == 0), default=None)
    return tuple(f"ep={d}" for d in (below, above) if d is not None)


def _widths(case: _Case) -> Iterator[Illegal]:
    """Sharded widths are whole, and whole blocks of block-quantised weights."""
    shard = case.shard()
    shared = ("tp", "ep") if shard.moe_over_group else ("tp",)
    cuts = {
        "dense": ("dense_ffn", shard.dense_tp, ("tp",), "dense width", "TP"),
        "expert": ("expert", shard.moe_tp, ("tp", "ep"), "expert width", "MoE-TP"),
        "shared": ("shared_expert", shard.shared_tp, shared, "shared expert width", "TP"),
    }
    for ffn in case.ffns():
        for key, width in ffn.widths().items():
            if key not in cuts:
                continue
            cls, degree, axes, what, name = cuts[key]
            block = case.block(cls)
            cut = f"{what} {width}"
            if width % degree:
                reason = f"{cut} % {name} {degree} = {width % degree}"
                yield Illegal(rule="width", reason=reason, axes=axes)
            elif degree > 1 and (width // degree) % block:
                reason = f"{cut} / {name} {degree} = {width // degree} is not a multiple of the "
                reason += f"quantisation block {block}"
                yield Illegal(rule="block", reason=reason, axes=axes)


def _attention_blocks(case: _Case) -> Iterator[Illegal]:
    """Per-rank attention widths are whole blocks of block-quantised weights."""
    block, tp = case.block("attention"), case.layout.tp
    for attention in case.attentions():
        tensors = attention.tensors(case.model.d_model, WHOLE)
        heads, kv = attention.n_query_heads(), attention.n_key_value_heads()
        if heads % tp or all(tensor.cls != "attention" for tensor in tensors):
            continue
        d_head: int = getattr(attention, "d_head", 0) or getattr(attention, "d_v", 0)
        widths = {"query width": heads // tp * d_head}
        if kv is not None:
            widths["KV width"] = kv_heads_per_rank(kv, tp) * d_head
        for what, width in widths.items():
            if width % block:
                reason = f"{what} per rank {width} (TP {tp}) is not a multiple of the "
                reason += f"quantisation block {block}"
                yield Illegal(rule="block", reason=reason, axes=("tp",))


def _pipeline(case: _Case) -> Iterator[Illegal]:
    pp, layers, most = case.layout.pp, case.model.n_layers, case.engine.rules.max_pp
    if pp > layers:
        reason = f"PP {pp} > layers {layers}"
        yield Illegal(rule="pipeline", reason=reason, nearest=(f"pp={layers}",))
    if pp > most:
        reason = f"PP {pp} > {most}, the most stages of {case.engine.label}"
        yield Illegal(rule="pipeline", reason=reason, nearest=(f"pp={most}",))


def _formats(case: _Case) -> Iterator[Illegal]:
    """A format needs tensor cores for it, or an engine that dequantises weights."""
    p, gpu, rules = case.precision, case.gpu, case.engine.rules
    for dtype in dict.fromkeys((p.weights, *p.exceptions.values())):
        if not gpu.supports(dtype) and dtype.value not in rules.weight_only:
            has = ", ".join(sorted(gpu.peak_flop_per_s))
            reason = f"{gpu.name} has no {dtype.compute} tensor cores for {dtype.value} weights "
            reason += f"(it has {has}) and {case.engine.label} does not run them weight-only"
            yield Illegal(rule="dtype", reason=reason, nearest=("weights=bf16",))


def _kv_format(case: _Case) -> Iterator[Illegal]:
    """KV is stored in a format of activations; one that is scaled in fp4 needs cores for it."""
    kv, gpu = case.precision.kv, case.gpu
    if kv not in KV_FORMATS:
        has = ", ".join(each.value for each in KV_FORMATS)
        reason = f"{kv.value} is a format of weights; KV is stored in one of {has}"
        yield Illegal(rule="dtype", reason=reason, nearest=("kv=bf16", "kv=fp8"))
    elif kv is DType.NVFP4 and not gpu.supports(kv):
        reason = f"{gpu.name} has no {kv.compute} tensor cores for {kv.value} KV"
        yield Illegal(rule="dtype", reason=reason, nearest=("kv=fp8",))


def _vendor(case: _Case) -> Iterator[Illegal]:
    needed, gpu = VENDORS.get(case.engine.name), case.gpu
    if needed is not None and gpu.vendor != needed:
        reason = f"{case.engine.label} runs on {needed} GPUs only; {gpu.name} is of {gpu.vendor}"
        yield Illegal(rule="vendor", reason=reason, nearest=("engine=vllm", "engine=sglang"))


def _lattice(case: _Case) -> Iterator[Illegal]:
    """What the engine's own flags can express."""
    layout, rules, label = case.layout, case.engine.rules, case.engine.label
    whole = layout.stage_ranks
    if case.model.is_moe and rules.expert_parallel == "tp_or_ep" and layout.ep not in (1, whole):
        reason = f"{label} sets MoE-TP equal to TP x DP, or uses pure EP: EP {layout.ep} is "
        reason += f"neither 1 nor {whole}"
        yield Illegal(rule="lattice", reason=reason, nearest=("ep=1", f"ep={whole}"))
    if layout.dp > 1 and layout.tp > 1 and rules.dp_excludes_tp:
        reason = f"{label} has attention DP or attention TP, not both: TP {layout.tp}, "
        reason += f"DP {layout.dp}"
        yield Illegal(rule="lattice", reason=reason, axes=("tp", "dp"))
    if layout.dp > 1 and rules.dp_needs_mla_or_ep and not _may_data_parallel(case):
        reason = f"{label} needs latent attention or EP for attention DP {layout.dp}"
        yield Illegal(rule="lattice", reason=reason, nearest=("dp=1",))


def _may_data_parallel(case: _Case) -> bool:
    with_heads = [a for a in case.attentions() if a.n_query_heads()]
    latent = all(attention.n_key_value_heads() is None for attention in with_heads)
    return latent or (case.model.is_moe and case.layout.ep > 1)


def _gpu_blocks(case: _Case) -> Iterator[Illegal]:
    """A kernel's block rule on one architecture, for all formats or for one."""
    rules, architecture = case.engine.rules.gpu_block_rules, case.gpu.architecture
    dtype = case.precision.of("expert").value
    multiple = rules.get(f"{architecture}/{dtype}", rules.get(architecture, 1))
    moe_tp = case.layout.expert_tp
    for ffn in case.ffns():
        width = ffn.widths().get("expert", 0)
        if width % moe_tp == 0 and (width // moe_tp) % multiple:
            reason = f"expert width {width} / MoE-TP {moe_tp} = {width // moe_tp}; "
            reason += f"{case.engine.label} on {case.gpu.architecture} needs a multiple of "
            reason += f"{multiple}"
            yield Illegal(rule="gpu_block", reason=reason, axes=("tp", "ep"))


def _cluster(case: _Case) -> Iterator[Illegal]:
    """Whole replicas fill the pool, and a fabric joins their GPUs."""
    replica, total = case.layout.n_gpus, case.n_gpus
    if total is not None and total % replica:
        reason = f"{counted(total, 'GPU')} % {replica} GPUs of a replica = {total % replica}"
        whole = total // replica * replica
        near = tuple(f"gpus={n}" for n in (whole, whole + replica) if n)
        yield Illegal(rule="cluster", reason=reason, nearest=near)
    if case.fabric is not None and replica > case.fabric.scale_out.n_gpus:
        most = case.fabric.scale_out.n_gpus
        reason = f"a replica of {replica} GPUs exceeds the {most} that {case.fabric.name} joins"
        yield Illegal(rule="cluster", reason=reason)


_RULES: tuple[Callable[[_Case], Iterator[Illegal]], ...] = (
    _heads,
    _kv_heads,
    _context_parallel,
    _identity,
    _experts,
    _widths,
    _attention_blocks,
    _pipeline,
    _formats,
    _kv_format,
    _vendor,
    _lattice,
    _gpu_blocks,
    _cluster,
)
