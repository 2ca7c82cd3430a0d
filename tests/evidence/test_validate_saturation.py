"""Accuracy targets on measured sweeps, and agreement with the simulator on a few deployments."""

from random import Random

import numpy as np
import pytest

from dse.catalog import Catalog
from dse.evidence.calibrate_saturation import fit_constants
from dse.evidence.measurement import read_measurements
from dse.evidence.saturation_against_sim import agreement, random_cases
from dse.evidence.sweep import sweep_rows
from dse.evidence.validate_saturation import advice_scores, pool_errors, score, sweep_scores
from dse.saturation.constants import shipped_fit
from dse.serving.legality import check


@pytest.fixture(scope="module")
def rows(measured_data):
    found, _ = sweep_rows(
        read_measurements(measured_data / "truth" / "e2e_dev.csv"), Catalog.load()
    )
    assert len(found) >= 70
    return found


def test_longer_outputs_from_shorter_ones(rows):
    short = [row for row in rows if row.measured.osl_tokens <= 131]
    long = [row for row in rows if row.measured.osl_tokens > 131]
    constants, _ = fit_constants(short)
    found = score("longer outputs", constants, long, len(short))
    assert found.throughput_mape <= 0.03
    assert found.tpot_mape <= 0.06


@pytest.mark.slow
def test_unseen_lengths_and_models(rows):
    scores = {score.name: score for score in sweep_scores(rows)}
    assert scores["longer outputs"].throughput_mape <= 0.03
    assert scores["OPT models for the others"].throughput_mape <= 0.08
    left_out = [score for name, score in scores.items() if name.endswith("left out")]
    assert len(left_out) == 4
    assert all(score.throughput_mape <= 0.05 for score in left_out)
    assert all(score.tpot_mape <= 0.06 for score in scores.values())


@pytest.mark.slow
def test_advice_on_the_sweep(rows):
    scores = advice_scores(rows)
    free = [score for score in scores if score.bound_s is None]
    assert len(free) == 8
    assert all(score.loss <= 0.05 for score in free)
    # One bound of forty is missed by 4%, and said so in docs/accuracy-saturation.md.
    missed = [score for score in scores if not score.meets_bound]
    assert len(missed) <= 1
    assert all(score.measured_tpot_s <= 1.05 * (score.bound_s or 0.0) for score in missed)


def test_pools_from_the_catalog_are_those_printed(rows):
    errors = [abs(error) for _, error in pool_errors(rows)]
    assert len(errors) == len(rows)
    assert max(errors) <= 0.03


def test_the_shipped_fit_is_of_these_rows(rows):
    pool = rows[0].deployment.pools[0]
    fit = shipped_fit(pool.gpu.name, pool.engine.label)
    assert fit is not None
    assert fit.n_rows == len(rows)
    assert fit.mape <= 0.03


def test_agreement_with_the_simulator():
    found = agreement(16, seed=3, most_requests=200)
    assert found.rank_correlation() >= 0.97
    assert found.median_difference() <= 0.08
    assert np.all(np.array(found.predicted_tpot_s) > 0)


def test_random_cases_are_legal_and_repeatable():
    catalog = Catalog.load()
    first, again = (random_cases(catalog, Random(5), 100) for _ in range(2))
    for _ in range(5):
        case, same = next(first), next(again)
        pool = case.deployment.pools[0]
        assert case == same
        assert not check(
            case.deployment.model, case.deployment.precision, pool.layout, pool.engine, pool.gpu,
            fabric=pool.fabric, suggest=False,
        )  # fmt: skip
