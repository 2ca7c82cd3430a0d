"""Each shipped study at a small budget: what is counted equals its recorded `.out`, what is found
is proved, and a second run finds everything in the store.

`python -m tests.examples.test_studies` records again.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.pipeline.projects import ROOT, Project

HERE = Path(__file__).parent
BUDGETS = {
    "quickstart": ("space.batch=[4, 32]", "workload.requests=2 x concurrency"),
    "deepseek_h20_layouts": (
        "space.n_gpus=16",
        "space.context={isl: 1500, osl: 500}",
        "space.batch=[16]",
        "space.precision.kv=fp8",
        "workload.requests=1 x concurrency",
    ),
    "chat_8b": (
        "space.n_gpus=1",
        "space.precision.weights=fp8",
        "workload.requests=40",
        "slo.attainment=0.8",
    ),
    "long_context_moe": (
        "space.layout={tp: 8, dp: [1, 4], ep: auto}",
        "space.batch=[4]",
        "workload.requests=1 x concurrency",
    ),
    "procurement_70b": ("space.layout.tp=[4]", "workload.requests=40", "slo.attainment=0.9"),
}
COUNTED = ("question", "n_candidates", "illegal", "screened")


def small(name: str) -> list[str]:
    return [word for setting in BUDGETS[name] for word in ("--set", setting)]


def answered(project: Project, name: str) -> dict[str, Any]:
    said = project.run("--json", small=small(name), name=name)
    assert said.code == 0, said.err + said.out
    return said.document()


def counted(found: dict[str, Any]) -> str:
    return json.dumps({key: found[key] for key in COUNTED}, indent=2, ensure_ascii=False) + "\n"


def test_every_study_has_a_budget_and_a_record():
    assert {path.stem for path in (ROOT / "studies").glob("*.yaml")} == set(BUDGETS)
    assert {path.stem for path in HERE.glob("*.out")} == set(BUDGETS)


@pytest.mark.parametrize("name", BUDGETS)
def test_a_study_is_answered_as_recorded_and_reused(name, tmp_path):
    project = Project.made(tmp_path)
    found = answered(project, name)
    assert counted(found) == (HERE / f"{name}.out").read_text("utf-8")
    assert found["certificate"]["valid"]
    assert found["n_failed"] == 0
    assert found["n_simulated"] > 0
    again = answered(project, name)
    assert again["n_simulated"] == 0
    assert again["front"] == found["front"]


if __name__ == "__main__":
    for study in BUDGETS:
        with TemporaryDirectory() as folder:
            text = counted(answered(Project.made(Path(folder)), study))
            (HERE / f"{study}.out").write_text(text, "utf-8")
