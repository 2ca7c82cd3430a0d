"""The account as a few coefficients: what lets floors be columns over batch and context.

Per rank and summed over stages, a step of `n` requests on context `S` needs

    step + n · (request + slope · S + Σ cap_i · min(S, knot_i)) + experts · (1 − miss^tokens)

of each resource; a prompt needs `token` per token and `position` by the place of each. Amounts,
so that one set serves every GPU and fabric. They never exceed the account: activations, the renewed
expansion of cached latents, and whatever bends between two knots (reads are concave in context) are
left out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dse.cost.account import floor_program, tokens_computed
from dse.cost.lower import Counted, Program
from dse.cost.network import network_floor
from dse.cost.work import work
from dse.hardware.fabric import Fabric
from dse.hardware.gpu import GPU
from dse.model.ffn._routing import hottest_share
from dse.model.ops import Collective, Gemm, Num
from dse.serving.deployment import Deployment, Pool

# Resource → amount: `hbm` in bytes, `sfu` in exponentials, `flop:<format>` in FLOP.
Amounts = Mapping[str, float]
MAX_KNOTS = 3
FAR_TOKENS = 2.0**24


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`fixed + slope · x + Σ caps_i · min(x, knots_i)`, each in amounts."""

    knots: tuple[float, ...]
    fixed: Amounts
    slope: Amounts
    caps: tuple[Amounts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Routed experts of the mean rank: `bytes_all · (1 − miss^tokens)` are touched at least."""

    bytes_all: float
    miss: float

    def touched_bytes(self, n_tokens: Num) -> Num:
        """Bytes that `n_tokens` tokens of the expert group touch."""
        return self.bytes_all * (1.0 - self.miss**n_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """A pool's steps. `step` is read whatever the batch; `token` is per token of the rank, `group`
    per token of its expert group, `row` per row of logits; `context` is a decoding request's
    attention, `position` that of a prompt's token by its place. `messages` are the
    collectives of one token of the rank, `group_messages` of one of its group.
    """

    q_tokens: int
    step: Amounts
    token: Amounts
    group: Amounts
    row: Amounts
    experts: Experts
    context: Curve
    position: Curve
    messages: tuple[Counted, ...]
    group_messages: tuple[Counted, ...]
    row_messages: tuple[Counted, ...]


def coefficients(deployment: Deployment, pool: Pool) -> Coefficients:
    """The coefficients of `pool`."""
    lowered = floor_program(deployment, pool)
    q = tokens_computed(deployment)
    stages = range(pool.layout.pp)
    knots = knots_of(lowered)

    def local(m: float) -> Amounts:
        return amounts(counted for i in stages for counted in lowered.token_ops(i, m))

    def attend(context: float) -> Amounts:
        return amounts(c for i in stages for c in lowered.decode_ops(i, 1.0, q, context))

    def position(place: float) -> Amounts:
        # Half a token back, so that the sum over places is the integral.
        ops = (c for i in stages for c in lowered.prefill_ops(i, 1.0, 1.0, place - 0.5))
        return amounts((c for c in ops if not isinstance(c.op, Gemm)), keep_hbm=False)

    step, token = _affine(local)
    head, row = _affine(lambda rows: amounts(lowered.head_ops(rows)))
    _, group = _affine(lambda m: _without_hbm(lowered, stages, m))
    return Coefficients(
        q_tokens=q,
        step=_sum(step, head),
        token=token,
        group=group,
        row=row,
        experts=_experts(lowered, stages),
        context=fit_curve(attend, knots),
        position=fit_curve(position, knots),
        messages=_messages(lowered, stages, m=1.0, m_group=0.0),
        group_messages=_messages(lowered, stages, m=0.0, m_group=1.0),
        row_messages=tuple(c for c in lowered.head_ops(1.0) if isinstance(c.op, Collective)),
    )


def amounts(ops: Iterable[Counted], *, keep_hbm: bool = True) -> dict[str, float]:
    """Amounts of these ops by resource; collectives and activations are left out."""
    found: dict[str, float] = {}
    for counted in ops:
        if isinstance(counted.op, Collective):
            continue
        need, count = work(counted.op), counted.count
        if need.flop:
            key = f"flop:{need.compute}"
            found[key] = found.get(key, 0.0) + count * float(need.flop)
        if need.sfu_ops:
            found["sfu"] = found.get("sfu", 0.0) + count * float(need.sfu_ops)
        if keep_hbm and need.hbm_bytes:
            found["hbm"] = found.get("hbm", 0.0) + count * float(need.hbm_bytes)
    return found


def fit_curve(function: Callable[[float], Amounts], knots: tuple[float, ...]) -> Curve:
    """`function` through its values at the knots, with the slope it has far out; where it is
    concave this is nowhere above it.
    """
    places = (0.0, *knots)
    values = [function(place) for place in places]
    far, farther = function(FAR_TOKENS), function(2.0 * FAR_TOKENS)
    last = _scaled(_sum(farther, far, -1.0), 1.0 / FAR_TOKENS)
    slopes = [
        _scaled(_sum(high, low, -1.0), 1.0 / (b - a))
        for low, high, a, b in zip(values, values[1:], places, places[1:], strict=False)
    ]
    caps = [_sum(s, t, -1.0) for s, t in zip(slopes, (*slopes, last)[1:], strict=True)]
    return Curve(knots=knots, fixed=values[0], slope=last, caps=tuple(caps))


def knots_of(lowered: Program) -> tuple[float, ...]:
    """Contexts at which some layer stops reading more, the widest `MAX_KNOTS` of them."""
    found: set[float] = set()
    for group in lowered.model.layers:
        attention = group.attention
        chosen = getattr(attention, "top_k_tokens", 0) * max(1, getattr(attention, "ratio", 1))
        limits = (attention.window, getattr(attention, "window_tokens", None), chosen)
        found |= {float(limit) for limit in limits if limit}
    return tuple(sorted(found)[-MAX_KNOTS:])


def seconds(found: Amounts, gpu: GPU) -> dict[str, float]:
    """Seconds of amounts at peak rates: `hbm`, `flop` (all formats) and `sfu`."""
    peaks = gpu.peak_flop_per_s
    flop = sum(
        amount / peaks.get(key.removeprefix("flop:"), peaks["bf16"])
        for key, amount in found.items()
        if key.startswith("flop:")
    )
    return {
        "hbm": found.get("hbm", 0.0) / gpu.hbm_bytes_per_s,
        "flop": flop,
        "sfu": found.get("sfu", 0.0) / gpu.sfu_op_per_s,
    }


def message_seconds(messages: Iterable[Counted], fabric: Fabric) -> tuple[float, float]:
    """`(latency, bytes)` seconds of these collectives."""
    latency = n_bytes = 0.0
    for counted in messages:
        if isinstance(counted.op, Collective):
            floor = network_floor(counted.op, fabric)
            latency += counted.count * floor.latency_s
            n_bytes += counted.count * float(floor.bytes_s)
    return latency, n_bytes


def _affine(function: Callable[[float], Amounts]) -> tuple[Amounts, Amounts]:
    """`(constant, slope)` of a function that is affine from 1 on."""
    one, two = function(1.0), function(2.0)
    slope = _sum(two, one, -1.0)
    return _sum(one, slope, -1.0), slope


def _without_hbm(lowered: Program, stages: range, m: float) -> Amounts:
    ops = (counted for i in stages for counted in lowered.group_ops(i, m))
    return amounts(ops, keep_hbm=False)


def _experts(lowered: Program, stages: range) -> Experts:
    """Expected union of experts, bounded below by way of the most popular expert's chance.

    With p that chance, Σ 1 − (1 − p_e)^n ≥ (Σ p_e / p) · (1 − (1 − p)^n), equal when uniform.
    """
    model, routing, shard = lowered.model, lowered.routing, lowered.shard
    total = miss = 0.0
    for group in (group for i in stages for group in lowered.stages[i] if group.ffn.is_moe):
        one = float(group.ffn.touched_elements(1, model.d_model, shard, routing))
        n_experts, top_k = group.ffn.widths()["experts"], int(getattr(group.ffn, "top_k", 1))
        share = hottest_share(routing.kind, routing.exponent, n_experts, top_k, n_experts)
        hottest = min(1.0, share * top_k)
        n_bytes = one * lowered.precision.of("expert").bytes_per_element
        total += group.repeat * n_bytes / hottest
        miss = max(miss, 1.0 - hottest)
    return Experts(bytes_all=total, miss=miss)


def _messages(lowered: Program, stages: range, *, m: float, m_group: float) -> tuple[Counted, ...]:
    return tuple(c for i in stages for c in lowered.collectives(i, m, m_group))


def _sum(a: Amounts, b: Amounts, scale: float = 1.0) -> dict[str, float]:
    return {key: a.get(key, 0.0) + scale * b.get(key, 0.0) for key in {*a, *b}}


def _scaled(a: Amounts, scale: float) -> dict[str, float]:
    return {key: amount * scale for key, amount in a.items()}
