"""What pools are likely to do: close to what the simulator finds, and in the right direction."""

from dataclasses import replace

import numpy as np
import pytest

from dse.search.pools import Decoding, Lengths, Prefilling
from dse.serving.arrivals import ClosedLoop
from dse.serving.layout import Layout
from dse.serving.lengths import Constant
from dse.serving.workload import Workload
from dse.sim import compile_pool, simulate
from tests import worlds

LENGTHS = Lengths(isl=1000.0, osl=200.0, lowest=1001.0, highest=1200.0)
BATCH = np.array([1.0, 4.0, 16.0, 64.0])
LOADS = (np.zeros(4, dtype=np.int64), BATCH)


def decoding(pool, *, is_shared):
    first = Prefilling.of([pool], [LENGTHS])
    return first, Decoding.of([pool], first, [LENGTHS], LOADS, is_shared=is_shared)


@pytest.fixture
def together():
    return worlds.deployment(worlds.llama_8b(), layout=Layout(tp=2))


@pytest.fixture
def apart(together):
    decode = replace(together.pools[0], role="decode")
    return replace(together, pools=(replace(decode, role="prefill", n_replicas=2), decode))


@pytest.mark.parametrize("batch", [4, 16, 64])
@pytest.mark.parametrize("is_apart", [False, True])
def test_near_what_is_simulated(together, apart, batch, is_apart):
    deployment = apart if is_apart else together
    workload = Workload(
        arrivals=ClosedLoop(concurrency=batch),
        n_requests=20 * batch,
        isl=Constant(n_tokens=1000),
        osl=Constant(n_tokens=200),
    )
    found = simulate(deployment, workload, 0)
    pool = compile_pool(deployment, deployment.pools[-1].role)
    prefilling, guess = decoding(pool, is_shared=not is_apart)
    place = int(np.flatnonzero(batch == BATCH)[0])
    rate = float(guess.req_per_s[0, 0, place])
    if is_apart:
        rate = min(rate, 2.0 * float(prefilling.req_per_s[0, 0]))
    simulated = found.output_tok_per_s_per_gpu * deployment.n_gpus / 200.0
    assert rate == pytest.approx(simulated, rel=0.3)
    tpot = float(guess.tpot_at(np.array([0]), np.array([place]), np.array([rate]))[0])
    assert tpot == pytest.approx(found.tpot.mean, rel=0.3)


@pytest.mark.parametrize("is_shared", [False, True])
def test_more_in_flight_is_more_and_slower(together, is_shared):
    _, guess = decoding(compile_pool(together, "both"), is_shared=is_shared)
    assert (np.diff(guess.req_per_s[0, 0]) > 0).all()
    assert (np.diff(guess.tpot_s[0, 0]) > 0).all()
    assert (np.diff(guess.slower_s, axis=2) <= 1e-9).all()


def test_at_its_own_rate_a_pool_has_its_own_steps(together):
    _, guess = decoding(compile_pool(together, "both"), is_shared=False)
    which = np.zeros(4, dtype=np.int64)
    found = guess.tpot_at(which, np.arange(4), guess.req_per_s[0, 0])
    assert found == pytest.approx(guess.tpot_s[0, 0], rel=0.02)
    lower = guess.tpot_at(which, np.arange(4), guess.req_per_s[0, 0] / 4)
    assert (lower <= found).all()


def test_layouts_without_room_are_unknown():
    first = Prefilling.of([None], [LENGTHS])
    found = Decoding.of([None], first, [LENGTHS], LOADS, is_shared=True)
    assert np.isnan(first.req_per_s).all()
    assert np.isnan(found.req_per_s).all()
