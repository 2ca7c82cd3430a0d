"""A measured step against its floor interval: what the residual says before a profiler is opened
(Floor First, arXiv:2607.05876, sections 2.3 and 3.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import dse.catalog
from dse.base.errors import UserError
from dse.base.source import read
from dse.cost.account import decode_floor, prefill_floor
from dse.cost.floor import StepFloor
from dse.hardware import DType
from dse.serving.deployment import Deployment, Pool

__all__ = ["Budget", "Thresholds", "Triage", "regime_of", "thresholds", "triage"]

FEW_REQUESTS = 16

Phase = Literal["decode", "prefill"]
Verdict = Literal["below_floor", "inside", "residual", "escalate"]

_QUESTIONS: dict[str, str] = {
    "below_floor": "Which input is wrong: a fact of the GPU, the bytes of the model, tokens per "
    "step (speculation), or the batch that really ran?",
    "inside": "None: the step overlaps its resources as well as `overlap_quality` says. Change the "
    "layout or the load, not the kernels.",
    "net": "Is communication exposed? Compare collective time with the network terms, and overlap "
    "or shrink what is not hidden.",
    "hbm": "Which kernel stays below its roofline? Compare attention and GEMM time with the HBM "
    "terms.",
    "flop": "Which kernel stays below its roofline? Look at tiles and waves of the GEMMs that the "
    "FLOP terms name.",
    "host": "Are there gaps between kernels on the GPU? The unexplained time is larger than every "
    "floor term: look at the host first.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Open a profiler above `escalate · t_opt`, of decode steps that of their `regimes` where it is
    given (`regime_of`): launches weigh more in a small step. MBU bands are for decode, MFU for
    prefill.
    """

    escalate: float
    decode_mbu_good: float
    decode_mbu_poor: float
    prefill_mfu_good: float
    prefill_mfu_poor: float
    source: str
    regimes: Mapping[str, float] = field(default_factory=dict)

    def of(self, regime: str) -> "Thresholds":
        """Those that hold in `regime`."""
        return replace(self, escalate=self.regimes.get(regime, self.escalate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One line of the budget: a resource's floor, or the time that no floor explains."""

    resource: str
    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Triage:
    """`residual` = measured ÷ `t_opt`; `position` = (measured − t_opt) / (t_sum − t_opt);
    `overlap_quality` = 1 − position where the measurement lies inside the interval, else None.
    """

    phase: Phase
    measured_s: float
    t_opt_s: float
    t_sum_s: float
    residual: float
    position: float
    overlap_quality: float | None
    mbu: float
    mfu: float
    band: str
    verdict: Verdict
    binding: str
    question: str
    budget: tuple[Budget, ...]
    thresholds: Thresholds


@lru_cache(maxsize=1)
def thresholds() -> Thresholds:
    """The thresholds in use, with their source."""
    folder = Path(dse.catalog.__file__).parent
    return read(folder / "coefficients" / "triage.yaml", Thresholds)


def triage(
    deployment: Deployment,
    measured_s: float,
    *,
    phase: Phase = "decode",
    n_requests: float = 1,
    context_tokens: float = 8192,
    cached_tokens: float = 0,
    limits: Thresholds | None = None,
) -> Triage:
    """Diagnose one measured step.

    Decode: `measured_s` is the TPOT of one replica running `n_requests` on a mean context of
    `context_tokens`; under speculation it is multiplied by the expected tokens per step. Prefill:
    `measured_s` is the TTFT of a prompt of `context_tokens`, `cached_tokens` of them cached,
    without queueing. Raises `UserError` for a measurement that is not positive.
    """
    if not measured_s > 0:
        raise UserError(f"measured time is {measured_s} s", "give a positive time, as 45 ms")
    pool, limits = deployment.pool(phase), limits or thresholds()
    if phase == "decode":
        limits = limits.of(regime_of(n_requests, is_moe=deployment.model.is_moe))
        floor = decode_floor(deployment, pool, n_requests, context_tokens)
        drafts = deployment.speculative
        step_s = measured_s * (1.0 if drafts is None else drafts.tokens_per_step)
    else:
        new_tokens = context_tokens - cached_tokens
        floor, step_s = prefill_floor(deployment, pool, new_tokens, cached_tokens), measured_s
    return _diagnosed(floor, step_s, phase, pool, deployment, limits)


def regime_of(n_requests: float, *, is_moe: bool) -> str:
    """The kind of decode step that has a threshold of its own."""
    few = n_requests <= FEW_REQUESTS
    return f"{'MoE' if is_moe else 'dense'} {'≤' if few else '>'} {FEW_REQUESTS}"


def _diagnosed(
    floor: StepFloor,
    step_s: float,
    phase: Phase,
    pool: Pool,
    deployment: Deployment,
    limits: Thresholds,
) -> Triage:
    t_opt_s, t_sum_s = float(floor.t_opt_s), float(floor.t_sum_s)
    width = t_sum_s - t_opt_s
    position = (step_s - t_opt_s) / width if width > 0 else 0.0
    verdict = _verdict(step_s, t_opt_s, t_sum_s, limits)
    mbu, mfu = _utilisation(floor, step_s, pool, deployment)
    unexplained_s = max(0.0, step_s - t_sum_s)
    return Triage(
        phase=phase,
        measured_s=step_s,
        t_opt_s=t_opt_s,
        t_sum_s=t_sum_s,
        residual=step_s / t_opt_s,
        position=position,
        overlap_quality=1.0 - position if verdict == "inside" else None,
        mbu=mbu,
        mfu=mfu,
        band=_band(phase, mbu, mfu, limits),
        verdict=verdict,
        binding=floor.binding,
        question=_question(verdict, floor, unexplained_s),
        budget=_budget(floor, step_s, unexplained_s),
        thresholds=limits,
    )


def _verdict(step_s: float, t_opt_s: float, t_sum_s: float, limits: Thresholds) -> Verdict:
    if step_s < t_opt_s:
        return "below_floor"
    if step_s <= t_sum_s:
        return "inside"
    return "residual" if step_s <= limits.escalate * t_opt_s else "escalate"


def _utilisation(
    floor: StepFloor, step_s: float, pool: Pool, deployment: Deployment
) -> tuple[float, float]:
    """(MBU, MFU): weights and KV per second ÷ bandwidth, FLOP of the model per second ÷ peak of the
    weights' format, of the ranks of one stage after another.
    """
    moved = sum(
        float(term.amount)
        for term in floor.terms
        if term.resource == "hbm" and term.name != "activations"
    )
    flop = sum(float(term.amount) for term in floor.terms if term.resource == "flop")
    gpu, fastest = pool.gpu, deployment.precision.weights
    peak = gpu.peak(fastest) if gpu.supports(fastest) else gpu.peak(DType.BF16)
    return moved / step_s / gpu.hbm_bytes_per_s, flop / step_s / peak


def _band(phase: Phase, mbu: float, mfu: float, limits: Thresholds) -> str:
    value, good, poor = (
        (mbu, limits.decode_mbu_good, limits.decode_mbu_poor)
        if phase == "decode"
        else (mfu, limits.prefill_mfu_good, limits.prefill_mfu_poor)
    )
    return "good" if value > good else "fair" if value >= poor else "poor"


def _question(verdict: Verdict, floor: StepFloor, unexplained_s: float) -> str:
    if verdict in {"below_floor", "inside"}:
        return _QUESTIONS[verdict]
    times = {"hbm": floor.t_hbm_s, "flop": floor.t_flop_s, "net": floor.t_net_s}
    if unexplained_s > max(float(each) for each in times.values()):
        return _QUESTIONS["host"]
    return _QUESTIONS[max(times, key=lambda name: float(times[name]))]


def _budget(floor: StepFloor, step_s: float, unexplained_s: float) -> tuple[Budget, ...]:
    lines = [
        Budget(
            resource=term.resource,
            name=term.name,
            seconds=float(term.seconds),
            share=float(term.seconds) / step_s,
        )
        for term in floor.terms
    ]
    rest = Budget(
        resource="unexplained",
        name="beyond t_sum",
        seconds=unexplained_s,
        share=unexplained_s / step_s,
    )
    return (*sorted(lines, key=lambda line: -line.seconds), rest)
