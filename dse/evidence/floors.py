"""The floor of a measured row: what its step and its prompt take at least."""

from __future__ import annotations

from dataclasses import dataclass

from dse.cost.account import decode_floor, prompt_floor_s
from dse.cost.memory import rank_memory
from dse.evidence.case import Case
from dse.serving.arrivals import AllAtOnce
from dse.serving.workload import Workload

__all__ = ["StepAsked", "by_floor", "step_asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAsked:
    """The mean decode step of a row: requests that decode in one replica, tokens of each."""

    n_requests: float
    context_tokens: float
    isl_tokens: float
    osl_tokens: float


def step_asked(case: Case) -> StepAsked:
    """The mean decode step of a measured row.

    Requests in flight are the load's, at most what the engine, its KV pool and the token budget of
    its steps hold; by Little's law
    the share of them that decode is the share of a request's time after its first token, where the
    row gives both.
    """
    assert case.deployment is not None
    assert case.workload is not None
    pool, isl, osl = case.deployment.pool("decode"), *_lengths(case.workload)
    context = isl + 0.5 * osl
    in_flight = case.workload.arrivals.concurrency_limit or case.workload.n_requests
    n = in_flight / pool.n_replicas
    pool_tokens = rank_memory(case.deployment, pool).kv_pool_tokens() * pool.layout.dp
    most = [pool.engine.max_num_seqs * pool.layout.dp, pool_tokens / context]
    if pool.engine.scheduler.cuts_prompts:
        # Steps of a full budget compute (isl + osl) ÷ osl tokens for each that they hand out.
        most.append(pool.engine.max_num_batched_tokens * pool.layout.dp * osl / (isl + osl))
    n = max(1.0, min(n, *most))
    if not isinstance(case.workload.arrivals, AllAtOnce):
        n *= _decoding_share(case, osl)
    return StepAsked(n_requests=max(1.0, n), context_tokens=context, isl_tokens=isl, osl_tokens=osl)


def by_floor(case: Case) -> dict[str, float]:
    """Floors of the latencies and, from them, ceilings of the throughputs; SI."""
    assert case.deployment is not None
    asked, pool = step_asked(case), case.deployment.pool("decode")
    tpot = float(
        decode_floor(case.deployment, pool, asked.n_requests, asked.context_tokens).t_opt_s
    )
    ttft = prompt_floor_s(case.deployment, case.deployment.pool("prefill"), round(asked.isl_tokens))
    e2e = ttft + tpot * max(0.0, asked.osl_tokens - 1.0)
    rate = asked.n_requests * pool.n_replicas / tpot
    return {
        "ttft_s": ttft,
        "tpot_s": tpot,
        "e2e_s": e2e,
        "output_tok_per_s": rate,
        "total_tok_per_s": rate * (1.0 + asked.isl_tokens / asked.osl_tokens),
    }


def _decoding_share(case: Case, osl: float) -> float:
    ttft, tpot = case.measured.get("ttft_s"), case.measured.get("tpot_s")
    if not ttft or not tpot:
        return 1.0
    decoding = tpot * max(1.0, osl - 1.0)
    return decoding / (ttft + decoding)


def _lengths(workload: Workload) -> tuple[float, float]:
    """Mean prompt and answer."""
    assert workload.isl is not None
    assert workload.osl is not None
    marks = [(i + 0.5) / 16.0 for i in range(16)]
    isl, osl = (sum(map(each.at, marks)) / 16.0 for each in (workload.isl, workload.osl))
    return isl, osl
