"""Questions that few ask: each has an answer, or a reason."""

import pytest

from tests.pipeline.projects import HERE, dse


@pytest.fixture
def asked(fresh):
    def ask(**changes):
        sets = [part for name, value in changes.items() for part in ("--set", f"{name}={value}")]
        small = ("--set", "space.batch=[2, 8]", "--set", "space.precision.weights=fp8")
        return dse("run", fresh.study(), *HERE, *small, *sets, "--json")

    return ask


def test_energy_is_an_objective(asked):
    said = asked(objectives="[joules_per_token, tpot_mean]")
    assert said.code == 0, said.err
    assert said.document()["front"][0]["joules_per_token"] > 0


def test_answers_of_one_token_void_nothing(asked):
    said = asked(**{"space.context": "{isl: 300, osl: 1}"})
    assert "VOID" not in said.out + said.err
    assert said.code in (0, 3), said.err


def test_nothing_simulated_has_a_page(asked):
    said = asked(
        objectives="[output_tok_per_s_per_gpu]",
        constraints="[ttft_mean <= 0.1 ms]",
        slo="{ttft: 10 s}",
    )
    assert said.code == 3, said.err
