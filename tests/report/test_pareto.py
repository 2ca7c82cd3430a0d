"""The Pareto section: which axes it has, and that its caption says what is drawn."""

from dataclasses import replace
from typing import Any

import pytest

from dse.report.content import content
from dse.report.record import Outcome
from dse.report.subject import subject


def caption(made: Outcome) -> str:
    front = next(each for each in content(made).sections if each.name == "front")
    return front.charts[0].caption


def with_floors(made: Outcome, faster: float) -> Outcome:
    """Floors of TPOT that are `faster` than each member of the front."""
    tpot = dict(made.front.select("point_id", "tpot_mean_s").iter_rows())
    load = dict(made.front.select("point_id", "concurrency").iter_rows())
    details: dict[str, Any] = {
        point: {
            "curve": [{"concurrency": load[point], "t_opt_s": seconds / faster, "t_sum_s": seconds}]
        }
        for point, seconds in tpot.items()
    }
    return replace(made, details=details)


@pytest.mark.parametrize(("faster", "drawn"), [(1.2, True), (1e4, False)])
def test_floors_are_named_where_they_are_in_sight(
    made: Outcome, faster: float, drawn: bool
) -> None:
    asked = with_floors(made, faster)
    assert ("Dotted" in caption(asked)) == drawn
    assert ("optimistic" in content(asked).datasets) == drawn


def test_axes_are_the_objectives(made: Outcome) -> None:
    latency = subject(made)
    assert (latency.x.column, latency.y.column) == ("tpot_mean_s", "output_tok_per_s_per_gpu")
    parts = made.study.parts
    other = {"usd_per_mtok_output": "min", "goodput_req_per_s_per_gpu": "max"}
    cost, goodput = (_Objective(column=column, direction=way) for column, way in other.items())
    for order in ((cost, goodput), (goodput, cost)):
        about = replace(latency, objectives=order)
        assert (about.x.column, about.y.column) == tuple(other)
        assert about.first.column == order[0].column
    assert replace(latency, objectives=parts[:1]).x.column == "tpot_p99_s"


class _Objective:
    """What a report asks of an objective."""

    def __init__(self, column: str, direction: str) -> None:
        self.column, self.direction = column, direction
        self.title, self.unit = column, ""


def test_points_beyond_the_axes_are_counted(made: Outcome) -> None:
    found = content(made)
    front = next(each for each in found.sections if each.name == "front")
    assert "lie beyond these axes" in front.charts[0].caption
    assert len(found.datasets["results"]) == made.results.height
