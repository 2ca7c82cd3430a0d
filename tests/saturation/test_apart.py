"""Two pools: the slower sets the rate, and a free one leaves the other alone."""

from dataclasses import replace

import numpy as np
import pytest

from dse.saturation.apart import throughput_apart
from dse.saturation.curve import curve_of, stack
from dse.saturation.model import Load, throughput
from dse.serving.deployment import Deployment
from tests import worlds
from tests.saturation.worlds import FREE

LOAD = Load(concurrency=32, isl_tokens=2000, osl_tokens=200, osl_cv2=0.2)


def apart(n_prefill=1, n_decode=1, load=LOAD, transfer_s=0.0):
    whole = worlds.deployment(worlds.llama_8b())
    pool = whole.pools[0]
    pools = (
        replace(pool, role="prefill", n_replicas=n_prefill),
        replace(pool, role="decode", n_replicas=n_decode),
    )
    deployment: Deployment = replace(whole, pools=pools)
    curves = [stack([curve_of(deployment, FREE, phase=phase)]) for phase in ("prefill", "decode")]
    return throughput_apart(*curves, 0, load, transfer_s)


def value(array):
    return float(np.asarray(array).item())


def test_prefill_limits_until_it_has_replicas_enough():
    rates = [value(apart(n_prefill=n).req_per_s) for n in (1, 2, 8, 16)]
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.05)
    assert rates[3] == pytest.approx(rates[2], rel=0.1)


def test_decode_runs_without_interference():
    together = throughput(stack([curve_of(worlds.deployment(worlds.llama_8b()), FREE)]), 0, LOAD)
    parted = apart(n_prefill=16)
    assert value(parted.tpot_s) < value(together.tpot_s)
    assert value(parted.req_per_s) > value(together.req_per_s)


def test_rates_count_all_gpus():
    found = apart(n_prefill=3)
    assert value(found.output_tok_per_s) == pytest.approx(4 * value(found.output_tok_per_s_per_gpu))


@pytest.mark.parametrize("concurrency", [1, 8, 200])
def test_littles_law_over_both_pools(concurrency):
    found = apart(n_prefill=4, load=replace(LOAD, concurrency=concurrency), transfer_s=0.05)
    assert value(found.req_per_s * found.e2e_s) == pytest.approx(concurrency, rel=0.1)


def test_transfer_adds_to_the_first_token():
    load = replace(LOAD, concurrency=1)
    near, far = (apart(load=load, transfer_s=t) for t in (0.0, 0.5))
    assert value(far.ttft_s - near.ttft_s) == pytest.approx(0.5, rel=1e-3)
