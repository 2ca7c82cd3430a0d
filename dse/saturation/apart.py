"""Prefill and decode on pools of their own: the slower of the two sets the rate."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dse.cost.tables import Array
from dse.saturation.curve import Curves
from dse.saturation.lane import Load
from dse.saturation.model import Steady, throughput

HALVINGS = 30
PLENTY = 1e6  # requests in flight that saturate any pool


def throughput_apart(
    prefill: Curves, decode: Curves, which: ArrayLike, load: Load, transfer_s: ArrayLike = 0.0
) -> Steady:
    """Predict each point of disaggregated deployments: `which` of both pools' curves.

    A request is prefilled, its KV moves in `transfer_s`, and it decodes. In a closed loop those in
    decode are what concurrency leaves; beyond the prefill pool's capacity the others wait there.
    """
    index = np.asarray(which, dtype=np.intp)
    prompts = replace(load, osl_tokens=1.0, osl_cv2=0.0, n_requests=np.inf)
    most = throughput(
        prefill, which, replace(prompts, concurrency=PLENTY), kept_full=True
    ).req_per_s
    alone = throughput(prefill, which, replace(prompts, concurrency=1.0), kept_full=True)
    concurrency = np.asarray(load.concurrency, dtype=float)
    # Equal requests come back as one wave, which the prefill pool takes in batches of its budget.
    wave = throughput(prefill, which, prompts, kept_full=True).e2e_s
    prompt = np.asarray(load.isl_tokens, dtype=float) - np.asarray(load.cached_tokens)
    budget = np.asarray(prefill.budget_tokens)[index] * np.asarray(prefill.lanes)[index]
    batches = np.maximum(concurrency * prompt / budget, 1.0)
    in_waves = np.maximum(wave * (1.0 + 1.0 / batches) / 2.0, alone.e2e_s)
    first_s = np.where(np.asarray(load.osl_cv2) > 0, alone.e2e_s, in_waves)
    before_s = first_s + np.asarray(transfer_s, dtype=float)
    answers = replace(load, received_tokens=load.isl_tokens)
    in_decode = _left_for_decode(decode, which, answers, concurrency, most, before_s)
    found = throughput(decode, which, replace(answers, concurrency=in_decode), kept_full=True)
    # Fewer than one request in decode at a time: what a lone one takes sets the rate.
    lone = concurrency / (before_s + found.e2e_s)
    rate = np.minimum(np.minimum(found.req_per_s, most), np.nan_to_num(lone))
    decoding_s = found.e2e_s - found.ttft_s
    waits = concurrency / np.where(rate > 0, rate, np.nan) - decoding_s
    ttft = np.maximum(np.where(rate < most, before_s + found.ttft_s, waits), before_s)
    osl = np.asarray(load.osl_tokens, dtype=float)
    n_gpus = np.asarray(prefill.n_gpus)[index] + np.asarray(decode.n_gpus)[index]
    return replace(
        found,
        req_per_s=rate,
        output_tok_per_s=rate * osl,
        output_tok_per_s_per_gpu=rate * osl / n_gpus,
        ttft_s=ttft,
        e2e_s=ttft + decoding_s,
    )


def _left_for_decode(
    decode: Curves,
    which: ArrayLike,
    load: Load,
    concurrency: Array,
    most_per_s: Array,
    before_s: Array,
) -> Array:
    """Requests in decode: with those before it they make up the concurrency, and no more finish
    than the prefill pool hands over. Bisection of the logarithm.
    """
    shape = np.broadcast_shapes(np.shape(which), concurrency.shape, before_s.shape)
    low = np.zeros(shape)
    high = np.broadcast_to(np.log(np.maximum(concurrency, 1.0)), shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        count = np.exp(middle)
        rate = throughput(decode, which, replace(load, concurrency=count), kept_full=True).req_per_s
        fits = (count + rate * before_s <= concurrency) & (rate <= most_per_s)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.exp(low)
