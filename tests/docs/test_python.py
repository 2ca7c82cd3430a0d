"""Python that the documentation shows runs; shown parts keep the contract of their family."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.pipeline.projects import Project

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def made(name: str) -> Any:
    """The part that a block of how-to-add.md defines."""
    (text,) = [block for block in blocks("docs/how-to-add.md") if f"class {name}(" in block]
    names: dict[str, Any] = {"__name__": "shown"}
    exec(text, names)
    part = names[name]()
    assert text.startswith("# dse/")
    assert f"/{part.kind}.py" in text.splitlines()[0]
    return part


def test_the_readme_runs(tmp_path, monkeypatch: pytest.MonkeyPatch):
    import dse
    from dse.pipeline import api

    project = Project.made(tmp_path)
    monkeypatch.chdir(project.folder)
    small = {"space.batch": "[4]", "space.precision.weights": "fp8", "space.gpu": "h200-sxm"}
    monkeypatch.setattr(api, "load_study", lambda file, **_: dse.load_study(file, set_=small))
    (text,) = blocks("README.md")
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["report"].front().height > 0


def test_the_shown_wall_is_one():
    from dse.walls.facts import facts_of
    from tests import worlds

    wall = made("FirstChunk")
    facts = facts_of(worlds.deployment(worlds.mixture())) | {
        "isl_low_tokens": 100.0, "osl_low_tokens": 20.0, "osl_high_tokens": 20.0,
        "shared_tokens": 0.0, "in_flight": 4.0, "slo_ttft_s": 1.0,
    }  # fmt: skip
    assert 0 < float(wall.demand(facts)) < float(wall.limit(facts)) == 1.0


def test_the_shown_objective_is_one():
    objective = made("E2EP99")
    frame = pl.DataFrame({"e2e_p99_s": [2.0]}).with_columns(objective.view())
    assert frame[objective.column].to_list() == [2.0]


def test_the_shown_scheduler_serves_one_after_the_other():
    from dataclasses import replace

    from dse.serving.arrivals import AllAtOnce
    from dse.serving.lengths import Constant
    from dse.serving.workload import Workload
    from dse.sim import simulate
    from tests import worlds

    world = worlds.deployment(worlds.llama_8b())
    (pool,) = world.pools
    engine = replace(pool.engine, scheduler=made("OneByOne"))
    one = replace(world, pools=(replace(pool, engine=engine),))
    load = Workload(
        arrivals=AllAtOnce(), n_requests=3, isl=Constant(n_tokens=64), osl=Constant(n_tokens=4)
    )
    found = simulate(one, load, tier="roofline")
    assert found.served_by == "reference"
    # Three equal requests in a line: the second ends at twice the time of the first.
    assert found.e2e.mean == pytest.approx(
        2 * simulate(one, replace(load, n_requests=1), tier="roofline").e2e.mean, rel=1e-6
    )
