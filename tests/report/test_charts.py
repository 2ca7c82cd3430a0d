"""Charts as Vega-Lite dictionaries: what they encode, and of which data."""

import json
from typing import Any

import pytest

from dse.report.charts import compare, funnel, load, physics, procurement, sensitivity
from dse.report.charts.front import FrontAxes, front
from dse.report.charts.theme import COLOURS, SHAPES, colours, config, spec_of
from dse.report.quantities import quantity

X, Y = quantity("tpot_mean_s"), quantity("output_tok_per_s_per_gpu")


def axes(**changes: Any) -> FrontAxes:
    facts: dict[str, Any] = {
        "x": X,
        "y": Y,
        "gpus": ["a", "b"],
        "families": ["TP", "apart"],
        "x_span": (4.0, 50.0),
        "y_span": (20.0, 2000.0),
    }
    return FrontAxes(**facts | changes)


def layers(chart: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chart.to_dict()["layer"]
    return found


def marks(chart: Any) -> list[str]:
    return [layer["mark"]["type"] for layer in layers(chart)]


def named(chart: Any) -> set[str]:
    spec = chart.to_dict()
    places = [spec, *spec["layer"]]
    return {place["data"]["name"] for place in places if "data" in place} - set(
        spec.get("datasets", {})
    )


def test_the_front_shows_seconds_as_milliseconds() -> None:
    text = json.dumps(front(axes()).to_dict())
    assert '"calculate": "datum[\'tpot_mean_s\'] * 1000"' in text
    assert '"calculate": "datum[\'output_tok_per_s_per_gpu\']"' in text


def test_the_front_keeps_colour_shape_and_domain() -> None:
    member = layers(front(axes()))[-1]
    assert member["encoding"]["color"]["scale"] == {"domain": ["a", "b"], "range": [*COLOURS[:2]]}
    assert member["encoding"]["shape"]["scale"] == {
        "domain": ["TP", "apart"],
        "range": [*SHAPES[:2]],
    }
    assert member["encoding"]["x"]["scale"]["domain"] == [4.0, 50.0]
    assert member["encoding"]["x"]["axis"]["title"] == "TPOT mean (ms) ← better"
    assert member["encoding"]["y"]["axis"]["title"] == "output per GPU (tok/s/GPU) ↑ better"


def test_logarithmic_axes_are_asked_for() -> None:
    member = layers(front(axes(log_x=True)))[-1]
    kinds = [member["encoding"][where]["scale"]["type"] for where in "xy"]
    assert kinds == ["log", "linear"]


def test_dominated_points_are_faint_and_infeasible_ones_fainter() -> None:
    found = {
        layer["transform"][-1]["filter"]: layer["encoding"]["opacity"]["condition"][0]["value"]
        for layer in layers(front(axes()))
        if layer["mark"]["type"] == "point" and "condition" in layer["encoding"].get("opacity", {})
    }
    beaten = found["!datum.on_front && datum.feasible !== false"]
    failing = found["!datum.on_front && datum.feasible === false"]
    assert failing < beaten < found["datum.on_front"] == 1.0


def test_slo_bounds_are_rules_at_their_value() -> None:
    chart = front(axes(bounds=[("x", 40.0, "TPOT p99 ≤ 40 ms"), ("y", 100.0, "floor")]))
    rows = [row for data in chart.to_dict()["datasets"].values() for row in data]
    assert {"bound": 40.0, "text": "TPOT p99 ≤ 40 ms"} in rows
    assert marks(chart).count("rule") == 2


@pytest.mark.parametrize(
    ("bound", "row"),
    [
        (("x", 400.0, "TPOT"), {"bound": 50.0, "text": "TPOT →"}),
        (("x", 1.0, "TPOT"), {"bound": 4.0, "text": "← TPOT"}),
        (("y", 9000.0, "floor"), {"bound": 2000.0, "text": "floor ↑"}),
    ],
)
def test_a_bound_beyond_the_axes_squeezes_nothing(bound: Any, row: dict[str, Any]) -> None:
    chart = front(axes(bounds=[bound]))
    rows = [each for data in chart.to_dict()["datasets"].values() for each in data]
    assert rows == [row]
    assert "rule" not in marks(chart)
    label = next(layer for layer in layers(chart) if layer["mark"]["type"] == "text")
    assert label["mark"]["align"] == ("right" if row["bound"] == 50.0 else "left")


@pytest.mark.parametrize("n", [1, 2])
def test_a_front_of_several_precisions_has_a_line_for_each(n: int) -> None:
    precisions = ["bf16 / bf16", "fp8 / bf16"][:n]
    line = next(
        layer
        for layer in layers(front(axes(precisions=precisions)))
        if "order" in layer["encoding"]
    )
    assert ("strokeDash" in line["encoding"]) == (n > 1)


def test_floors_and_own_fronts_are_drawn_where_known() -> None:
    assert marks(front(axes())).count("line") == 1
    assert marks(front(axes(optimistic=True, own_fronts=True))).count("line") == 3
    assert named(front(axes(optimistic=True))) == {"results", "optimistic"}


@pytest.mark.parametrize(
    ("chart", "data"),
    [
        (funnel.funnel(4), {"funnel"}),
        (procurement.interactivity("gpu", ["a"]), {"interactivity"}),
        (procurement.fleet("gpu", ["a"]), {"fleet"}),
        (physics.wall_order(["a"], ["hbm"], has_load=True), {"wall_order", "wall_load"}),
        (physics.floors(["a"]), {"floors"}),
        (physics.breakdown(["a"], ["gemm"], ["all steps"]), {"breakdown"}),
        (physics.roofline(["a"]), {"roof", "operating"}),
        (load.bounds(["a"], slo_tpot_s=0.04), {"bounds"}),
        (load.latency("tpot", "concurrency", ["a"], bound_s=0.04), {"load"}),
        (compare.moves(X, Y, ("a", "b")), {"moves", "places"}),
    ],
    ids=lambda each: ",".join(sorted(each)) if isinstance(each, set) else "",
)
def test_charts_read_named_data_and_fill_their_place(chart: Any, data: set[str]) -> None:
    spec = chart.to_dict()
    assert named(chart) == data
    assert spec["width"] == "container"
    assert spec["height"] > 0


def test_one_name_has_one_colour_everywhere() -> None:
    assert colours(["x", "y"]).to_dict() == colours(["x", "y"]).to_dict()
    many = colours([str(i) for i in range(12)]).to_dict()
    assert len(many["range"]) == 12
    assert many["range"][10] == many["range"][0]


def test_a_layout_family_keeps_its_colour_whatever_stands_beside_it() -> None:
    """The front draws families in their order, other charts in that of their names."""
    drawn = [["TP", "TEP"], ["TEP", "single GPU"], ["TEP"]]
    found = [
        dict(zip(s["domain"], s["range"], strict=True))
        for s in (colours(names).to_dict() for names in drawn)
    ]
    assert len({each["TEP"] for each in found}) == 1
    assert len({*found[0].values(), *found[1].values()}) == 3


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("paper", ["#ffffff", "#14171b"])
@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_stands_out_on_light_and_dark(colour: str, paper: str) -> None:
    one, two = sorted((luminance(colour), luminance(paper)))
    assert (two + 0.05) / (one + 0.05) >= 2.0


def test_the_look_is_given_by_ink() -> None:
    look = config(ink="red", muted="blue", grid="green")
    assert look["axis"]["titleColor"] == look["text"]["color"] == "red"
    assert look["axis"]["gridColor"] == "green"


def test_a_spec_is_what_altair_gives_that_checks_it() -> None:
    assert spec_of(front, axes()) == front(axes()).to_dict()
    assert spec_of(funnel.funnel, 4) == funnel.funnel(4).to_dict()


@pytest.mark.parametrize("contexts", [("4k/1k",), ("4k/1k", "1k/1k")])
def test_small_multiples_keep_the_schema(contexts: tuple[str, ...]) -> None:
    wanted = sensitivity.MultipleAxes(
        name="rows",
        x_title="price",
        y=Y,
        column="gpu",
        names=["a", "b"],
        precisions=["fp8"],
        contexts=contexts,
        has_bound=True,
    )
    spec = sensitivity.multiples(wanted).to_dict()
    assert ("facet" in spec) == (len(contexts) > 1)
    assert spec == spec_of(sensitivity.multiples, wanted)
