"""The steady state of a lane under its scheduler: what a step holds, and how long it takes."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.cost.tables import Array
from dse.saturation.lane import Lane

ITERATIONS = 12  # of the batch in chunked prefill; each halves what is left of the error


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The steady state of one lane: `n_decode` requests decode, `req_per_s` finish, `mixed_s` and
    `decode_s` are steps with and without prompt tokens, `prompt_s` a request's own prompt.
    `is_full` where the token budget, not the requests in flight, limits the lane.
    """

    n_decode: Array
    req_per_s: Array
    tpot_s: Array
    step_s: Array
    mixed_s: Array
    decode_s: Array
    prompt_s: Array
    is_full: NDArray[np.bool_]


def cycle_of(lane: Lane) -> Cycle:
    """The steady state under each lane's own scheduler."""
    mixes = lane.schedule == 0
    if mixes.all():
        return _chunked(lane)
    if not mixes.any():
        return _batched(lane)
    chunked, batched = _chunked(lane), _batched(lane)
    names = [each.name for each in fields(Cycle)]
    merged: dict[str, Any] = {
        name: np.where(mixes, getattr(chunked, name), getattr(batched, name)) for name in names
    }
    return Cycle(**merged)


def _chunked(lane: Lane) -> Cycle:
    """Decodes first, prompts in what is left of the token budget (chunked prefill)."""
    steps, prompt = lane.decode_steps, lane.prompt
    full = lane.budget / (steps * lane.q + prompt)
    n_decode = np.minimum(lane.most, full * steps)
    for _ in range(ITERATIONS):
        free = np.maximum(lane.budget - n_decode * lane.q, 1.0)
        prompt_steps = np.maximum(prompt / free, 1.0)
        per_step = np.minimum(lane.most / (steps + prompt_steps), full)
        n_decode = 0.5 * (n_decode + per_step * steps)
    free = np.maximum(lane.budget - n_decode * lane.q, 1.0)
    clump = lane.clump(lane.most, per_step)
    chunk = np.minimum(free, clump * prompt)
    own = np.minimum(per_step * prompt / chunk, 1.0)
    is_full = per_step >= 0.999 * full
    share = lane.any_rank(own, is_full)
    beside = np.clip(lane.most - np.maximum(chunk / prompt, 1.0), 0.0, n_decode)
    mixed_s = lane.mixed_step_s(beside, chunk, chunk * lane.group_lanes * own / share)
    decode_s = lane.decode_step_s(n_decode)
    step_s = share * mixed_s + (1.0 - share) * decode_s
    own_s = np.maximum(prompt / free, 1.0) * mixed_s
    others = (step_s * (steps + prompt_steps) - own_s) / np.maximum(steps, 1e-9)
    return Cycle(
        n_decode=n_decode,
        req_per_s=per_step / step_s,
        tpot_s=np.where(is_full, step_s, others),
        step_s=step_s,
        mixed_s=mixed_s,
        decode_s=decode_s,
        prompt_s=own_s,
        is_full=is_full,
    )


def _batched(lane: Lane) -> Cycle:
    """Whole prompts in steps of their own, before decoding goes on (prefill first), or all of a
    batch at once, which then decodes to its longest output (static).
    """
    n_decode, is_static = lane.most, lane.schedule == 2
    longest = 1.0 + np.sqrt(lane.cv2 * 2.0 * np.log(np.maximum(n_decode, 1.0)))
    steps = lane.decode_steps * np.where(is_static, longest, 1.0)
    clump = lane.clump(n_decode, n_decode / np.maximum(steps, 1.0))
    batched = np.minimum(clump * lane.prompt, np.maximum(lane.budget, lane.prompt))
    chunk = np.where(is_static, n_decode * lane.prompt, batched)
    prompt_s = lane.mixed_step_s(np.zeros_like(chunk), chunk, chunk * lane.group_lanes)
    decode_s = lane.decode_step_s(n_decode)
    prompts_s = n_decode * lane.prompt / chunk * prompt_s
    cycle_s = steps * decode_s + prompts_s
    own_s = np.maximum(lane.prompt / chunk, 1.0) * prompt_s
    return Cycle(
        n_decode=n_decode,
        req_per_s=n_decode / cycle_s,
        tpot_s=(cycle_s - own_s) / np.maximum(steps, 1e-9),
        step_s=decode_s,
        mixed_s=prompt_s,
        decode_s=decode_s,
        prompt_s=own_s,
        is_full=np.zeros(n_decode.shape, dtype=bool),
    )
