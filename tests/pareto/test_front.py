"""The front against its definition, and objectives against hand-worked values."""

import math
from typing import ClassVar

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.pareto import OBJECTIVES, front, hypervolume, non_dominated, reference_point

TWO = (OBJECTIVES["output_tok_per_s_per_gpu"](), OBJECTIVES["tpot_mean"]())
RATE, TPOT = (each.column for each in TWO)


def frame(*rows):
    return pl.DataFrame(rows, schema={RATE: pl.Float64, TPOT: pl.Float64}, orient="row")


def test_hand_sized_front():
    found = front(frame((100, 0.01), (200, 0.02), (150, 0.03), (90, 0.02), (200, 0.02)), TWO)
    assert found["on_front"].to_list() == [True, True, False, False, True]
    assert found["front_rank"].to_list() == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("bad", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_finite_neither_joins_nor_knocks_out(bad):
    found = front(frame((100, 0.01), (bad, 0.001), (1000, bad)), TWO)
    assert found["on_front"].to_list() == [True, False, False]
    assert found["front_rank"].to_list() == [0, None, None]


def test_an_empty_frame_has_an_empty_front():
    assert front(frame(), TWO).columns == [RATE, TPOT, "front_rank", "on_front"]
    assert non_dominated(frame(), TWO).is_empty()
    assert hypervolume(frame(), TWO, (0.0, 1.0)) == 0.0


def test_hypervolume_of_one_rectangle_and_two():
    reference = (100.0, 0.05)
    assert hypervolume(frame((200, 0.03)), TWO, reference) == pytest.approx(100 * 0.02)
    two = frame((200, 0.03), (150, 0.01))
    assert hypervolume(two, TWO, reference) == pytest.approx(100 * 0.02 + 50 * 0.02)


def test_the_reference_point_is_worse_than_every_row():
    rows = frame((100, 0.01), (200, 0.02), (math.nan, 0.5))
    assert reference_point(rows, TWO) == pytest.approx((80.0, 0.55))


values = st.integers(0, 6).map(float)


@given(st.lists(st.tuples(values, values), max_size=30))
def test_members_are_exactly_those_that_no_row_dominates(points):
    def beats(one, other):
        return one != other and one[0] >= other[0] and one[1] <= other[1]

    expected = [not any(beats(other, point) for other in points) for point in points]
    rows = frame(*points)
    assert front(rows, TWO)["on_front"].to_list() == expected
    assert non_dominated(rows, TWO).equals(rows.filter(pl.Series(expected, dtype=pl.Boolean)))


@given(st.lists(st.tuples(values, values), min_size=1, max_size=12), st.randoms())
def test_the_order_of_rows_changes_nothing(points, random):
    shuffled = random.sample(points, len(points))
    key = [RATE, TPOT]
    one, other = (front(frame(*rows), TWO).sort(key) for rows in (points, shuffled))
    assert one.equals(other)


class TestObjectives:
    metrics: ClassVar = pl.DataFrame(
        {
            "output_tok_per_s_per_gpu": [1000.0],
            "tpot_mean_s": [0.02],
            "usd_per_gpu_hour": [3.6],
            "joules_per_output_token": [0.7],
        }
    )

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("output_tok_per_s_per_gpu", 1000.0),
            ("tok_per_s_per_user", 50.0),
            ("usd_per_mtok_output", 1.0),  # 3.6 USD/h ÷ 3.6 Mtok/h
            ("joules_per_token", 0.7),
            ("tpot_mean", 0.02),
        ],
    )
    def test_hand_worked_value(self, kind, value):
        objective = OBJECTIVES[kind]()
        assert self.metrics.select(objective.view())[objective.column].item() == pytest.approx(
            value
        )

    @pytest.mark.parametrize("kind", OBJECTIVES)
    def test_it_says_what_it_is(self, kind):
        objective = OBJECTIVES[kind]()
        assert objective.direction in ("min", "max")
        assert objective.unit
        assert objective.title
        rows = pl.DataFrame({name: [1.0, 2.0] for name in objective.needs})
        assert rows.select(objective.view()).columns == [objective.column]

    @pytest.mark.parametrize("kind", OBJECTIVES)
    def test_better_metrics_never_give_a_worse_objective(self, kind):
        objective = OBJECTIVES[kind]()
        for name in objective.needs:
            better_is_more = "per_s" in name
            rows = pl.DataFrame({need: [1.0, 1.0] for need in objective.needs}).with_columns(
                pl.Series(name, [1.0, 2.0] if better_is_more else [2.0, 1.0])
            )
            worse, better = rows.select(objective.view())[objective.column]
            assert better >= worse if objective.direction == "max" else better <= worse
