"""Steady state of continuous batching in closed form, vectorised over points.

SLIM (arXiv:2607.29575, equations 8-11) prices a batch by its weights, its KV scan and its prompts.
Here the same account is per rank and the batch follows from conservation of tokens: a lane's step
holds `N` decoding requests and the prompt tokens that replace those that finish, up to the engine's
token budget; a request takes `D` decode steps and `ISL / P` prompt steps of `P` free tokens. Live
contexts average `ISL + OSL·(1 + cv²)/2`, and the pool holds no more of them than fit.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from dse.cost.tables import Array
from dse.saturation.curve import Curves
from dse.saturation.cycle import cycle_of
from dse.saturation.drain import burst_s, drain_of, queue_s
from dse.saturation.lane import Lane, Load

__all__ = ["Load", "Steady", "throughput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What a deployment does under a load; arrays over points.

    Rates are of the whole deployment and the whole run (its last requests included); latencies are
    means over requests, `ttft_s` with its queueing. `running` is the number of requests that decode
    at once and `kv_bytes` what they hold on a rank. A point whose pool does not hold one request
    has rate 0 and NaN latencies; `tpot_s` of one-token outputs is NaN.
    """

    req_per_s: Array
    output_tok_per_s: Array
    output_tok_per_s_per_gpu: Array
    tpot_s: Array
    ttft_s: Array
    e2e_s: Array
    running: Array
    kv_bytes: Array
    step_s: Array


def throughput(curves: Curves, which: ArrayLike, load: Load, *, kept_full: bool = False) -> Steady:
    """Predict each point: deployment `which` of `curves` under its entry of `load`.

    `load.concurrency` counts the requests on their way through the API server as well; where
    `kept_full`, only those that the engines have.
    """
    asked = Lane.of(curves, which, load)
    lane = asked if kept_full else _inside(asked, curves, which, load)
    cycle = cycle_of(lane)
    drain = drain_of(asked, cycle)  # a wave is of all in flight, wherever they are
    rate = 1.0 / (1.0 / cycle.req_per_s + drain.extra_s / asked.n_requests)
    mixed = (1.0 - drain.share) * cycle.tpot_s + drain.share * drain.tpot_s - drain.first_s
    tpot = np.where(lane.schedule == 2, cycle.decode_s, mixed * lane.preempted())
    tpot = np.where(lane.decode_steps > 0, tpot / lane.tokens_per_step, np.nan)
    decode_s = np.where(lane.decode_steps > 0, (lane.osl - 1.0) * tpot, 0.0)
    steady_s = lane.decode_steps * cycle.tpot_s * lane.preempted()
    service_s = lane.most / cycle.req_per_s - steady_s
    ttft = service_s + queue_s(lane, cycle) + burst_s(lane, cycle) + lane.arrival_s
    held = np.where(lane.holds, 1.0, np.nan)
    ttft = held * np.maximum(ttft, cycle.prompt_s)
    requests = np.where(lane.holds, rate * lane.n_active, 0.0)
    return Steady(
        req_per_s=requests,
        output_tok_per_s=requests * lane.osl,
        output_tok_per_s_per_gpu=requests * lane.osl / lane.n_gpus,
        tpot_s=held * tpot,
        ttft_s=ttft,
        e2e_s=ttft + held * decode_s,
        running=np.where(lane.holds, cycle.n_decode * lane.n_active, 0.0),
        kv_bytes=np.where(lane.holds, cycle.n_decode * lane.request_bytes * lane.pp, 0.0),
        step_s=held * cycle.step_s,
    )


def _inside(lane: Lane, curves: Curves, which: ArrayLike, load: Load) -> Lane:
    """The `lane` that the engines have, without the requests which the API server still holds.

    Little's law: of `K` in flight, `X·Z` spend their `Z` seconds there, at a rate `X` of at most
    `K / (R + Z)` with `R` seconds in the engine. Without successors (all at once) none do.
    """
    if not np.any(lane.arrival_s > 0):
        return lane
    most_req_per_s = cycle_of(lane).req_per_s
    inside_s = lane.most / most_req_per_s
    req_per_s = np.minimum(most_req_per_s, lane.in_flight / (inside_s + lane.arrival_s))
    in_api = np.where(lane.is_once, 0.0, req_per_s * lane.arrival_s)
    concurrency = (lane.in_flight - in_api) * lane.n_active
    return Lane.of(curves, which, replace(load, concurrency=concurrency))
