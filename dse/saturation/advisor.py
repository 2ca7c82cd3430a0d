"""The batch cap of a deployment: how many requests it should run at once, and the KV that frees.

Beyond the knee a larger batch adds latency and KV, not throughput. The advisor looks for the
smallest cap within a tolerance of the plateau that meets the latency bound (the batching advisor
of SLIM, arXiv:2607.29575, section VII, and of Mind the Memory Gap, arXiv:2503.08311). The tolerance
and the bound are meant of the real deployment, so both keep the model's own error as a margin.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dse.base.errors import InfeasibleError, UserError
from dse.base.units import UNITS, show
from dse.cost.memory import RankMemory, rank_memory
from dse.cost.tables import Array
from dse.saturation.constants import SaturationFit
from dse.saturation.curve import curve_of, stack, take
from dse.saturation.model import Load, Steady, throughput
from dse.serving.deployment import Deployment, Pool
from dse.serving.slo import SLO

TOLERANCE = 0.05
# Without a fit: errors of the kernel model's step times, and of their growth with the batch.
LATENCY_MARGIN = 0.10
THROUGHPUT_MARGIN = 0.03
LADDER = tuple(sorted({p * 2**k for k in range(13) for p in (1, 3)}))  # caps that operators set
MOST_SEQS = 4096  # per DP rank: beyond what any engine captures or schedules


class CapPoint(NamedTuple):
    """One cap of the curve; rates of the deployment, latencies of a request that does not queue,
    `kv_bytes` of a rank to run the cap without preemption.
    """

    batch_cap: int
    throughput_tok_per_s: float
    tpot_s: float
    ttft_s: float
    latency_s: float
    kv_bytes: float
    meets_slo: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What the freed KV memory of a rank could hold: `amount` `unit` of `what`, where it `fits`."""

    what: str
    fits: bool
    amount: float
    unit: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The cap for `max_num_seqs` (per DP rank), what it yields, and the KV it needs and frees.

    `plateau_tok_per_s` is the highest throughput of any cap, whatever its latency; `latency_s` the
    E2E of a request at the cap. `kv_bytes_*` are per GPU of the rank that limits; `limited_by` is
    `plateau` or `latency`; predicted latencies stay below the bound by `latency_margin`, the
    model's own error. `priced_by` names the fit, or the kernel model.
    """

    batch_cap: int
    throughput_tok_per_s: float
    plateau_tok_per_s: float
    latency_s: float
    tpot_s: float
    ttft_s: float
    kv_pool_bytes: float
    kv_bytes_needed: float
    kv_bytes_freed: float
    limited_by: str
    tolerance: float
    latency_margin: float
    priced_by: str
    curve: tuple[CapPoint, ...]
    uses: tuple[Use, ...]


def advise(
    deployment: Deployment,
    load: Load,
    slo: SLO | None = None,
    tolerance: float = TOLERANCE,
    *,
    fit: SaturationFit | None = None,
) -> Advice:
    """Advise the batch cap of an aggregated `deployment` for requests of `load`'s lengths.

    `load.concurrency` and `load.n_requests` are not read: each cap is kept full. InfeasibleError
    where weights leave no room for one request, or where no cap meets `slo`.
    """
    _refuse(deployment, load, tolerance)
    pool = deployment.pools[0]
    memory = rank_memory(deployment, pool)
    lengths = _Lengths.of(load)
    caps = _caps(memory, pool, lengths)
    steady = _sweep(deployment, pool, load, caps, fit)
    kv_bytes = np.array([needed_bytes(memory, pool, cap, lengths) for cap in caps])
    margin = _margin(fit)
    within = _within(steady, slo or SLO(), margin)
    rates = steady.output_tok_per_s
    if not within.any():
        raise _unmet(steady, slo or SLO(), margin)
    best = float(rates[within].max())
    plateau = float(rates.max())
    least = int(np.flatnonzero(within & (rates >= (1.0 - _lost(fit, tolerance)) * best))[0])
    at_plateau = rates[least] >= (1.0 - tolerance) * plateau
    chosen = _on_ladder(caps, within, least) if at_plateau else least
    room = _rank_at(deployment, pool, int(caps[chosen])).kv_pool_bytes
    needed = float(kv_bytes[chosen])
    points = _points(caps, steady, kv_bytes, within)
    return Advice(
        batch_cap=int(caps[chosen]),
        throughput_tok_per_s=float(rates[chosen]),
        plateau_tok_per_s=plateau,
        latency_s=float(steady.e2e_s[chosen]),
        tpot_s=float(steady.tpot_s[chosen]),
        ttft_s=float(steady.ttft_s[chosen]),
        kv_pool_bytes=room,
        kv_bytes_needed=min(needed, room),
        kv_bytes_freed=max(room - needed, 0.0),
        limited_by="plateau" if at_plateau else "latency",
        tolerance=tolerance,
        latency_margin=margin,
        priced_by=f"fit of {fit.n_rows} rows on {fit.gpu}" if fit else "kernel model",
        curve=points,
        uses=_uses(memory, pool, int(caps[chosen]), lengths, room - needed),
    )


@dataclass(frozen=True, slots=True)
class _Lengths:
    isl: float
    osl: float
    osl_cv2: float
    cached: float

    @classmethod
    def of(cls, load: Load) -> "_Lengths":
        values = (load.isl_tokens, load.osl_tokens, load.osl_cv2, load.cached_tokens)
        return cls(*(float(np.asarray(value).item()) for value in values))


def needed_bytes(memory: RankMemory, pool: Pool, cap: int, lengths: _Lengths) -> float:
    """KV bytes of a rank that run `cap` requests of one DP rank without preemption.

    Equal requests may all stand at their last token at once. Where lengths vary, three standard
    deviations above the sum of final contexts.
    """
    shared = memory.request_bytes(lengths.cached) if lengths.cached >= 1 else 0.0
    each = memory.request_bytes(lengths.isl + lengths.osl) - shared
    deviation = np.sqrt(cap * lengths.osl_cv2) * lengths.osl * memory.kv.first_token_bytes
    return shared + cap * each + 3.0 * float(deviation)


def _refuse(deployment: Deployment, load: Load, tolerance: float) -> None:
    if deployment.is_disaggregated:
        raise UserError("a batch cap is advised for one pool", "give the decode pool by itself")
    if not 0.0 <= tolerance < 1.0:
        raise UserError(f"tolerance is {tolerance}", "give a share from 0 to 1, as in 0.03")
    lengths = _Lengths.of(load)
    tokens = lengths.isl + lengths.osl
    if tokens > deployment.model.max_context_tokens:
        raise UserError(
            f"a request of {tokens:,.0f} tokens is longer than the context of "
            f"{deployment.model.name}, {deployment.model.max_context_tokens:,}",
            "shorten the requests",
        )


def _caps(memory: RankMemory, pool: Pool, lengths: _Lengths) -> NDArray[np.intp]:
    """Every cap up to 64, then steps of 2% and the ladder, as far as the pool may hold prompts."""
    live = memory.request_bytes(lengths.isl + 1.0)
    if memory.kv_pool_bytes <= 0 or needed_bytes(memory, pool, 1, lengths) > memory.kv_pool_bytes:
        short = needed_bytes(memory, pool, 1, lengths) - memory.kv_pool_bytes
        raise InfeasibleError(
            f"one request of {lengths.isl + lengths.osl:,.0f} tokens lacks {short / 1e9:.2f} GB "
            "of KV pool on each GPU",
            "more GPUs per replica, smaller weights, or a shorter context",
        )
    most = int(np.clip(1.5 * memory.kv_pool_bytes / live, 1, MOST_SEQS))
    steps = 64.0 * 1.02 ** np.arange(0.0, np.ceil(np.log(MOST_SEQS / 64.0) / np.log(1.02)) + 1)
    grid = np.unique(
        np.concatenate([np.arange(1, 65), np.round(steps), LADDER, [most]]).astype(np.intp)
    )
    return np.asarray(grid[grid <= most])


def _sweep(
    deployment: Deployment,
    pool: Pool,
    load: Load,
    caps: NDArray[np.intp],
    fit: SaturationFit | None,
) -> Steady:
    """The deployment with each cap kept full, and no longer queue."""
    engine = replace(pool.engine, max_num_seqs=int(caps[-1]))
    widest = replace(deployment, pools=(replace(pool, engine=engine),))
    curves = take(stack([curve_of(widest, fit)]), np.zeros(len(caps), dtype=np.intp))
    per_lane = np.maximum(caps / pool.layout.pp, 1.0)
    curves = replace(curves, max_seqs=per_lane)
    lanes: Array = np.asarray(curves.lanes)
    full = replace(load, concurrency=per_lane * lanes, n_requests=np.inf)
    return throughput(curves, np.arange(len(caps)), full, kept_full=True)


def _rank_at(deployment: Deployment, pool: Pool, cap: int) -> RankMemory:
    """The rank's memory with the cap set: fewer rows of logits leave a larger pool."""
    capped = replace(pool, engine=replace(pool.engine, max_num_seqs=cap))
    return rank_memory(replace(deployment, pools=(capped,)), capped)


def _on_ladder(caps: NDArray[np.intp], within: NDArray[np.bool_], least: int) -> int:
    """The next rung from `caps[least]` up that meets the bound too; else `least` itself.

    Knees are sharp and never placed exactly: the rung above costs KV, the rung below throughput.
    """
    rung = next((cap for cap in LADDER if cap >= caps[least]), int(caps[-1]))
    found = np.flatnonzero(caps == rung)
    return int(found[0]) if len(found) and within[found[0]] else least


def _margin(fit: SaturationFit | None) -> float:
    """How far above its prediction a latency may lie: as far as the worst row of the fit, for a
    bound is meant for every deployment.
    """
    return max(0.0, -min(fit.tpot_quantiles.values(), default=0.0)) if fit else LATENCY_MARGIN


def _lost(fit: SaturationFit | None, tolerance: float) -> float:
    """What the predicted throughput may give up so that the real one gives up `tolerance`."""
    margin = fit.residual_quantiles.get("0.9", 0.0) if fit else THROUGHPUT_MARGIN
    return max(tolerance - margin, 0.0)


def _within(steady: Steady, slo: SLO, margin: float) -> NDArray[np.bool_]:
    kept = np.isfinite(steady.e2e_s)
    for value, bound in _bounds(steady, slo):
        kept &= ~(value * (1.0 + margin) > bound)
    return kept


def _bounds(steady: Steady, slo: SLO) -> list[tuple[Array, float]]:
    pairs = [(steady.tpot_s, slo.tpot_s), (steady.ttft_s, slo.ttft_s), (steady.e2e_s, slo.e2e_s)]
    return [(value, bound) for value, bound in pairs if bound is not None]


def _unmet(steady: Steady, slo: SLO, margin: float) -> InfeasibleError:
    least = [
        f"{name} {show(float(np.nanmin(value)), UNITS['s'])} of {show(bound, UNITS['s'])}"
        for name, value, bound in (
            ("TPOT", steady.tpot_s, slo.tpot_s),
            ("TTFT", steady.ttft_s, slo.ttft_s),
            ("E2E", steady.e2e_s, slo.e2e_s),
        )
        if bound is not None
    ]
    return InfeasibleError(
        f"no batch cap meets the latency bound with a margin of {margin:.0%}; "
        f"at best {', '.join(least)}",
        "loosen the bound, or choose a faster layout",
    )


def _points(
    caps: NDArray[np.intp], steady: Steady, kv_bytes: Array, within: NDArray[np.bool_]
) -> tuple[CapPoint, ...]:
    columns: Sequence[Array] = (
        steady.output_tok_per_s, steady.tpot_s, steady.ttft_s, steady.e2e_s, kv_bytes,
    )  # fmt: skip
    rows = zip(
        caps.tolist(), *(column.tolist() for column in columns), within.tolist(), strict=True
    )
    return tuple(CapPoint(*row) for row in rows)


def _uses(
    memory: RankMemory, pool: Pool, cap: int, lengths: _Lengths, freed_bytes: float
) -> tuple[Use, ...]:
    needed = needed_bytes(memory, pool, cap, lengths)
    replica = memory.weight_bytes + sum(memory.overheads.values()) + needed
    copies = max(freed_bytes, 0.0) // replica
    return (
        Use(
            what="more replicas on the same GPUs",
            fits=copies >= 1,
            amount=copies,
            unit="replicas",
            note=f"each takes {replica / 1e9:.1f} GB a GPU with its own KV at this cap",
        ),
        _longer_context(memory, pool, cap, lengths),
        Use(
            what="prefixes kept in cache",
            fits=freed_bytes > 0,
            amount=max(freed_bytes, 0.0) // max(memory.kv.first_token_bytes, 1.0),
            unit="tokens",
            note="of finished requests, for those that share a prompt's start",
        ),
    )


def _longer_context(memory: RankMemory, pool: Pool, cap: int, lengths: _Lengths) -> Use:
    """The longest context at which `cap` requests still fit, by bisection of whole tokens."""
    stated = int(lengths.isl + lengths.osl)
    low, high = stated, max(memory.max_context_tokens, stated)
    while low < high:
        middle = (low + high + 1) // 2
        grown = _with_prompt(lengths, middle - lengths.osl)
        if needed_bytes(memory, pool, cap, grown) <= memory.kv_pool_bytes:
            low = middle
        else:
            high = middle - 1
    return Use(
        what="longer contexts at the same cap",
        fits=low > stated,
        amount=float(low),
        unit="tokens per request",
        note=f"instead of {stated:,}, at most the model's own {memory.max_context_tokens:,}",
    )


def _with_prompt(lengths: _Lengths, isl: float) -> _Lengths:
    """The same lengths with another prompt."""
    return _Lengths(isl, lengths.osl, lengths.osl_cv2, lengths.cached)
