"""A rate and its concurrency are two views of one state; a bracket encloses its own guess."""

from dataclasses import replace

import numpy as np
import pytest

from dse.saturation.curve import curve_of, stack
from dse.saturation.model import Load, throughput
from dse.saturation.operating import at_rate, bracket
from dse.serving.slo import SLO
from tests import worlds
from tests.saturation.worlds import FREE

LOAD = Load(concurrency=1, isl_tokens=1000, osl_tokens=200, osl_cv2=0.1)
CURVES = stack([curve_of(worlds.deployment(worlds.llama_8b()), FREE)])


def test_a_rate_finds_its_concurrency():
    closed = throughput(CURVES, 0, replace(LOAD, concurrency=40))
    opened = at_rate(CURVES, 0, LOAD, closed.req_per_s)
    assert opened.tpot_s == pytest.approx(closed.tpot_s, rel=1e-3)
    assert opened.running == pytest.approx(closed.running, rel=1e-3)


def test_beyond_capacity_the_rate_is_not_met():
    most = throughput(CURVES, 0, replace(LOAD, concurrency=1e5))
    found = at_rate(CURVES, 0, LOAD, 10 * most.req_per_s)
    assert found.req_per_s == pytest.approx(most.req_per_s, rel=0.02)


def test_the_guess_keeps_the_mean_below_the_bound():
    slo = SLO(tpot_s=0.025)
    found = bracket(CURVES, np.zeros(2, dtype=int), LOAD, slo)
    assert np.all(found.low < found.likely)
    assert np.all(found.likely < found.high)
    assert at_rate(CURVES, 0, LOAD, found.likely[0]).tpot_s <= 0.025
    assert at_rate(CURVES, 0, LOAD, 2 * found.high[0]).tpot_s > 0.025


def test_a_looser_bound_allows_more():
    rates = [float(bracket(CURVES, 0, LOAD, SLO(tpot_s=t)).likely) for t in (0.02, 0.03, 0.1)]
    assert rates == sorted(rates)
    assert rates[0] > 0


def test_an_impossible_bound_allows_nothing():
    assert float(bracket(CURVES, 0, LOAD, SLO(tpot_s=1e-4)).high) == 0.0
