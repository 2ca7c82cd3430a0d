"""Numbers as people read them, in the unit that a column is shown in."""

import math

import pytest

from dse.pareto import OBJECTIVES
from dse.report.quantities import cell, is_known, number, quantity
from dse.report.subject import shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5678, "1,235"),
        (0.012345, "0.0123"),
        (5.70, "5.7"),
        (999.96, "1,000"),
        (1e-12, "1.00e-12"),
        (-42.42, "-42.4"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("column", "value", "text", "label"),
    [
        ("tpot_p99_s", 0.0382, "38.2", "TPOT p99 (ms)"),
        ("ttft_mean_s", 1.5, "1.5", "TTFT mean (s)"),
        ("slo_attainment", 0.957, "95.7", "SLO attainment (%)"),
        ("concurrency", 1024, "1,024", "concurrency"),
        ("kv_pool_bytes", 2.5e9, "2.5", "kv pool (GB)"),
        ("lo_tpot_p99_s", 0.03, "30", "TPOT p99, low (ms)"),
        ("decode_tp", 8, "8", "decode TP"),
        ("feasible", True, "yes", "feasible"),
        ("gpu", None, "–", "GPU"),
    ],
)
def test_cells(column: str, value: object, text: str, label: str) -> None:
    assert cell(column, value) == text
    assert quantity(column).label == label


@pytest.mark.parametrize("kind", sorted(OBJECTIVES))
def test_every_objective_has_a_title_a_unit_and_a_direction(kind: str) -> None:
    objective = OBJECTIVES[kind]()
    found = shown(objective)
    assert found.title
    assert found.unit
    assert found.better == objective.direction
    assert is_known(objective.column)
